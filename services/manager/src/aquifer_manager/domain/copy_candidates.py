"""Which local segments are to be copied, and the metadata of their copies; decisions without effects (K-3.2)."""

from collections.abc import Sequence

from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.domain.ports import LogDescription, RolledSegment

__all__ = ["copy_metadata", "first_offset_to_copy", "select_candidates"]


def first_offset_to_copy(copied_offset: int, log_start_offset: int) -> int:
    """Where the next copy begins: after what is remote, and never below the log start."""
    return max(copied_offset + 1, log_start_offset)


def select_candidates(
    segments: Sequence[RolledSegment], from_offset: int, last_stable_offset: int
) -> list[RolledSegment]:
    """The rolled segments to copy, oldest first.

    From the segment that holds `from_offset` (copied whole, also when an earlier copy overlaps it) as long as the next segment's
    base offset is at or below the last stable offset.

    Args:
        segments: rolled segments, ascending; the active one is not among them.
        from_offset: first offset that is not remote yet.
        last_stable_offset: exclusive bound of what may be copied.
    """
    chosen = []
    for segment in segments:
        if segment.end_offset < from_offset:
            continue
        if segment.end_offset + 1 > last_stable_offset:
            break
        chosen.append(segment)
    return chosen


def copy_metadata(
    log: LogDescription, segment: RolledSegment, *, broker_id: int, now_ms: int
) -> RemoteLogSegmentMetadata:
    """Metadata of a new copy of a segment, under a new id.

    Raises:
        InvalidRequestError: the log's leader epochs do not cover the segment.
    """
    epochs = log.epoch_cache().entries_in_range(segment.base_offset, segment.end_offset + 1)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(log.topic_id_partition),
        start_offset=segment.base_offset,
        end_offset=segment.end_offset,
        broker_id=broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=now_ms,
        segment_size_bytes=segment.size_bytes,
        segment_leader_epochs={entry.epoch: entry.start_offset for entry in epochs},
        txn_index_empty=not segment.has_aborted_transactions,
    )
