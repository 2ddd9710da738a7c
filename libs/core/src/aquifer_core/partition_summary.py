"""What metadata knows of many partitions in a few numbers: an ability that a RemoteLogMetadataManager may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from aquifer_core.errors import InternalError
from aquifer_core.ids import TopicIdPartition

__all__ = ["MAX_SUMMARIES", "PartitionSummaries", "PartitionSummary", "SummariesUnsupportedError"]

MAX_SUMMARIES = 1000
"""Partitions of one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """A partition's remote metadata in numbers, all of one moment.

    Attributes:
        version: rises with every change of the partition; 0: nothing is known of it.
        earliest_log_offset: recorded log start offset; None: never recorded.
        segments: that are not gone.
        unfinished_segments: those of them in another state than COPY_SEGMENT_FINISHED.
        oldest_timestamp_ms: lowest time of their newest records; of the last change where that is unknown; -1: no segment.
        highest_end_offset: of all segments; -1: no segment.
        highest_offsets: by leader epoch, the highest offset ever finished.
    """

    version: int
    earliest_log_offset: int | None = None
    segments: int = 0
    unfinished_segments: int = 0
    oldest_timestamp_ms: int = -1
    highest_end_offset: int = -1
    highest_offsets: Mapping[int, int] = field(default_factory=dict)


class SummariesUnsupportedError(InternalError):
    """The service is of a version that has no summaries; other questions must be asked."""


@runtime_checkable
class PartitionSummaries(Protocol):
    """Answers for many partitions at once what would otherwise take several questions for each."""

    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """Summaries, in the order asked; idempotent.

        Args:
            partitions: at most `MAX_SUMMARIES`, each with the version that the caller knows, or None.

        Returns:
            None for a partition that still has the version that the caller knows.

        Raises:
            InvalidRequestError: too many partitions.
            RemoteStorageUnavailableError: the facts cannot be had.
            SummariesUnsupportedError: the service behind it is too old.
        """
        ...
