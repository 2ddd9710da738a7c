"""Cutting the end of a log off, or all of it (followers)."""

from collections.abc import Iterable
from contextlib import ExitStack

import structlog
from aquifer_core.leader_epoch import LeaderEpochEntry

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_flush import save_leader_epochs
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.producer_snapshots import (
    rebuild_producer_state,
    remove_snapshots_above,
    snapshot_offsets,
    write_snapshot,
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

    Raises:
        CorruptIndexError: The snapshot is damaged; nothing was changed.
        OSError: The disk failed.
    """
    producers = ProducerState(offset)
    if producer_snapshot is not None:
        producers = ProducerState.from_snapshot(offset, producer_snapshot)
    for segment in state.segments:
        _remove_now(state, segment)
    remove_snapshots_above(state.directory, -1)
    state.segments.add(
        LogSegment(
            state.directory, offset, state.config, now_ms=resources.clock.now_ms(), create=True
        )
    )
    state.producers = producers
    write_snapshot(state.directory, producers)
    state.leader_epochs.clear()
    for entry in epochs:
        state.leader_epochs.assign(entry.epoch, entry.start_offset)
    state.log_start_offset = offset if log_start_offset is None else log_start_offset
    state.first_local_offset = offset
    state.log_end_offset = state.high_watermark = state.recovery_point = offset
    state.epochs_saved = False
    await save_leader_epochs(state)


def _remove_now(state: LogState, segment: LogSegment) -> None:
    state.segments.remove(segment)
    segment.close()
    for path in segment.files():
        path.unlink(missing_ok=True)
