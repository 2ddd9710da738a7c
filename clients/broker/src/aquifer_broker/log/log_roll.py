"""Rolling a log to a new segment, and removing old segments."""

from collections.abc import Sequence

import structlog

from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.open_files import needs_free_file
from aquifer_broker.log.producer_snapshots import mark_snapshot_deleted, write_snapshot

__all__ = ["delete_segments", "roll_log"]

logger = structlog.get_logger(__name__)


def roll_log(state: LogState, resources: LogResources, base_offset: int) -> LogSegment:
    """Ends the active segment and starts one at an offset, with the producer snapshot of that offset.

    Nothing is fsynced here; `LogResources.on_rolled` lets somebody flush. An empty active segment with the same base offset
    stays.

    Raises:
        NoFreeFileError: The active segment goes on, and may be appended to.
        OSError: The disk failed.
    """
    active = state.segments.active
    base_offset = max(base_offset, state.log_end_offset)
    if active.base_offset == base_offset:
        return active
    if active.prepare_end() and active not in state.finished:
        state.finished.append(active)
    with needs_free_file(state.directory):
        state.producers.map_end_offset = base_offset
        write_snapshot(state.directory, state.producers)
        segment = LogSegment(
            state.directory, base_offset, state.config, now_ms=resources.clock.now_ms(), create=True
        )
    active.finish()
    state.segments.add(segment)
    resources.on_rolled(state.topic_id_partition)
    logger.info(
        "log_rolled",
        partition=str(state.topic_id_partition),
        base_offset=base_offset,
        finished_base_offset=active.base_offset,
        finished_size_bytes=active.size_bytes,
    )
    return segment


def delete_segments(
    state: LogState, resources: LogResources, segments: Sequence[LogSegment], reason: str
) -> None:
    """Takes segments out of the log at once; their files go after `file.delete.delay.ms`, so that readers can finish.

    Raises:
        OSError: The disk failed.
    """
    for segment in segments:
        state.segments.remove(segment)
        paths = segment.mark_deleted()
        paths += mark_snapshot_deleted(state.directory, segment.base_offset)
        resources.cleaner.schedule(paths, state.config.file_delete_delay_ms, segment.release)
        logger.info(
            "segment_deleted",
            partition=str(state.topic_id_partition),
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            reason=reason,
        )
