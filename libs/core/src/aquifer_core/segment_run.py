"""Segments that follow each other, found with one question: an ability that a RemoteLogMetadataManager may have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from aquifer_core.errors import InternalError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = [
    "MAX_RUN_SEGMENTS",
    "RunsUnsupportedError",
    "SegmentRun",
    "SegmentRuns",
    "bytes_left",
    "trimmed_run",
]

MAX_RUN_SEGMENTS = 16
"""Segments of one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRun:
    """Finished segments of a leader epoch from one that holds an offset on, without a gap, as they are at one moment.

    Attributes:
        segments: by start offset; empty when none holds the offset.
        may_have_transactions: whether any finished segment of the epoch from the first one on, or any of a later epoch, may have a transaction
            index; those that are in no lineage count, too. Without meaning when there are no segments.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    may_have_transactions: bool


class RunsUnsupportedError(InternalError):
    """The service is of a version that has no runs; other questions must be asked."""


@runtime_checkable
class SegmentRuns(Protocol):
    """Answers with one question what a reader that reads on would otherwise ask for each segment."""

    async def segment_run(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int, max_bytes: int
    ) -> SegmentRun:
        """Segments from an offset on; idempotent.

        Args:
            topic_id_partition: partition.
            leader_epoch: of the offset in the reader's lineage; the run does not go on in another one.
            offset: that the first segment holds, as `RemoteLogMetadataManager.remote_log_segment_metadata` finds it.
            max_bytes: when those found hold about as many from the offset on, no further one is added. There are at most `MAX_RUN_SEGMENTS`,
                and fewer than this allows only where nothing follows without a gap.

        Raises:
            RemoteResourceNotFoundError: the partition's deletion has finished.
            RemoteStorageUnavailableError: the facts cannot be had.
            RunsUnsupportedError: the service behind it is too old.
        """
        ...


def bytes_left(segment: RemoteLogSegmentMetadata, offset: int) -> int:
    """About how many bytes a segment has from an offset of its on, as if all records were of the same size."""
    offsets = segment.end_offset - segment.start_offset + 1
    return segment.segment_size_bytes * (segment.end_offset - offset + 1) // offsets


def trimmed_run(
    chain: Sequence[tuple[int, int, RemoteLogSegmentMetadata]], offset: int, max_bytes: int
) -> Iterator[RemoteLogSegmentMetadata]:
    """The part of a chain that is a run: without gaps, and no longer than asked for.

    Args:
        chain: first and last offset in the epoch, and the segment; by first offset, from the one that holds `offset` on.
        offset: where the reader begins.
        max_bytes: see `SegmentRuns.segment_run`.
    """
    found_bytes, reached = 0, offset - 1
    for first, last, segment in chain[:MAX_RUN_SEGMENTS]:
        if first > reached + 1 or (reached >= offset and found_bytes >= max_bytes):
            return
        yield segment
        found_bytes += bytes_left(segment, max(offset, segment.start_offset))
        reached = last
