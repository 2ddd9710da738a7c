"""Making a log durable, always in threads."""

import os
from collections.abc import Sequence
from contextlib import ExitStack

from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs
from aquifer_core.formats.segment_files import LEADER_EPOCH_CHECKPOINT_NAME

from aquifer_broker.log.atomic_file import fsync_directory, fsync_path, write_atomically
from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_errors import NoFreeFileError
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.producer_snapshots import snapshot_path

__all__ = ["flush_log", "save_leader_epochs"]


async def flush_log(state: LogState, offset: int) -> None:
    """Makes everything below an offset durable, indexes included, then moves the recovery point there.

    Raises:
        OSError: The disk failed.
    """
    async with state.flushing:
        await _save_leader_epochs(state)
        segments = _unflushed(state, offset)
        if not segments:
            return
        with ExitStack() as pins:
            descriptors = []
            for segment in segments:
                segment.save_indexes()
                descriptors.append(pins.enter_context(segment.log_file.pinned()))
            await on_disk(_fsync, state, segments, descriptors)
        state.finished = [each for each in state.finished if each not in segments]
        state.recovery_point = max(state.recovery_point, min(offset, state.log_end_offset))


def _unflushed(state: LogState, offset: int) -> list[LogSegment]:
    # Retention may have taken some meanwhile.
    finished = [each for each in state.finished if state.segments.get(each.base_offset) is each]
    state.finished = finished
    if offset <= state.recovery_point:
        return list(finished)
    grown = [
        segment
        for segment in state.segments.from_offset(state.recovery_point)
        if segment.base_offset < offset and segment not in finished
    ]
    # In order: a power cut in between leaves no hole before what is on the disk.
    return sorted([*finished, *grown], key=lambda segment: segment.base_offset)


async def save_leader_epochs(state: LogState) -> None:
    """Writes the leader epoch checkpoint if it is not up to date.

    Raises:
        OSError: The disk failed.
    """
    async with state.flushing:
        await _save_leader_epochs(state)


async def _save_leader_epochs(state: LogState) -> None:
    if state.epochs_saved:
        return
    text = format_leader_epochs(state.leader_epochs.entries)
    state.epochs_saved = True
    try:
        await on_disk(write_atomically, state.directory / LEADER_EPOCH_CHECKPOINT_NAME, text)
    except (OSError, NoFreeFileError):
        state.epochs_saved = False
        raise


def _fsync(state: LogState, segments: Sequence[LogSegment], descriptors: Sequence[int]) -> None:
    for segment, descriptor in zip(segments, descriptors, strict=True):
        os.fdatasync(descriptor)
        segment.fsync_indexes()
        fsync_path(snapshot_path(state.directory, segment.base_offset))
    fsync_directory(state.directory)
