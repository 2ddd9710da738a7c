"""Cutting the end of a log off, or all of it (followers)."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import structlog
from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs
from aquifer_core.formats.segment_files import LEADER_EPOCH_CHECKPOINT_NAME
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry

from aquifer_broker.log.atomic_file import write_atomically
from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_flush import save_leader_epochs
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.producer_snapshots import (
    rebuild_producer_state,
    remove_snapshots_above,
    snapshot_offsets,
    snapshot_path,
)
from aquifer_broker.log.producer_state import ProducerState

__all__ = ["restart_log", "truncate_log"]

logger = structlog.get_logger(__name__)


async def truncate_log(state: LogState, resources: LogResources, offset: int) -> bool:
    """Drops records at and after an offset; answers whether there were any. The caller keeps appends away.

    Raises:
        OSError: The disk failed.
    """
    if state.leader_epochs.truncate_from_end(offset):
        state.epochs_saved = False
    if offset >= state.log_end_offset:
        return False
    logger.info(
        "log_truncated",
        partition=str(state.topic_id_partition),
        before=state.log_end_offset,
        after=offset,
    )
    if offset < state.segments.first.base_offset:
        await restart_log(
            state, resources, offset, log_start_offset=min(state.log_start_offset, offset)
        )
        return True
    for segment in state.segments:
        if segment.base_offset > offset:
            _remove_now(state, segment)
    active = state.segments.active
    active.start_growing()
    state.segments.size_bytes -= active.truncate(offset)
    state.log_end_offset = offset
    state.log_start_offset = min(state.log_start_offset, offset)
    state.high_watermark = min(state.high_watermark, offset)
    state.recovery_point = min(state.recovery_point, offset)
    remove_snapshots_above(state.directory, offset)
    state.producers = await _rebuild_producers(state, offset)
    state.producers.on_high_watermark(state.high_watermark)
    await save_leader_epochs(state)
    return True


async def _rebuild_producers(state: LogState, offset: int) -> ProducerState:
    snapshots = [each for each in snapshot_offsets(state.directory) if each <= offset]
    segments = state.segments.from_offset(snapshots[-1] if snapshots else 0)
    with ExitStack() as pins:
        for segment in segments:
            pins.enter_context(segment.log_file.pinned())
        return await on_disk(rebuild_producer_state, state.directory, segments, offset)


async def restart_log(
    state: LogState,
    resources: LogResources,
    offset: int,
    *,
    log_start_offset: int | None = None,
    epochs: Iterable[LeaderEpochEntry] = (),
    producer_snapshot: bytes | None = None,
) -> None:
    """Empties the log and lets it go on at an offset, with leader epochs and producer state given.

    What belongs to the new log is on the disk before its first segment is made: a crash leaves the old segments, none, or a log
    that lacks nothing.

    Raises:
        CorruptIndexError: The snapshot is damaged; nothing was changed.
        OSError: The disk failed.
    """
    producers = ProducerState(offset)
    if producer_snapshot is not None:
        producers = ProducerState.from_snapshot(offset, producer_snapshot)
    new_epochs = LeaderEpochCache(epochs).entries
    async with state.flushing:
        await on_disk(_prepare_restart, state, producers, new_epochs)
    for segment in state.segments:
        _remove_now(state, segment)
    remove_snapshots_above(state.directory, -1, but=offset)
    state.segments.add(
        LogSegment(
            state.directory, offset, state.config, now_ms=resources.clock.now_ms(), create=True
        )
    )
    state.producers = producers
    state.leader_epochs.clear()
    for entry in new_epochs:
        state.leader_epochs.assign(entry.epoch, entry.start_offset)
    state.log_start_offset = offset if log_start_offset is None else log_start_offset
    state.first_local_offset = offset
    state.log_end_offset = state.high_watermark = state.recovery_point = offset
    state.epochs_saved = True


def _prepare_restart(
    state: LogState, producers: ProducerState, epochs: Sequence[LeaderEpochEntry]
) -> None:
    snapshot = snapshot_path(state.directory, producers.map_end_offset)
    write_atomically(snapshot, producers.to_snapshot())
    checkpoint = state.directory / LEADER_EPOCH_CHECKPOINT_NAME
    write_atomically(checkpoint, format_leader_epochs(epochs))


def _remove_now(state: LogState, segment: LogSegment) -> None:
    state.segments.remove(segment)
    segment.close()
    for path in segment.files():
        path.unlink(missing_ok=True)
