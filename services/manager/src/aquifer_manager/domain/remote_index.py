"""What a local remote index is to the manager's decisions (SR-32, SR-33)."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = ["CoveredSegment", "RemoteIndex", "RemoteIndexStore"]


class CoveredSegment(NamedTuple):
    """A segment, and the offsets, both inclusive, for which it is the one to read; its own may reach further on both sides."""

    metadata: RemoteLogSegmentMetadata
    first_offset: int
    last_offset: int

    @property
    def is_whole(self) -> bool:
        """Whether all of the segment's records are the partition's."""
        return (
            self.first_offset <= self.metadata.start_offset
            and self.metadata.end_offset <= self.last_offset
        )


class RemoteIndex(Protocol):
    """Which remote segments hold a partition's offsets, on the local disk. Every method blocks; one at a time may run.

    Whatever raises `CorruptIndexError` is damaged and must be deleted; after an `OSError` it must be opened again.
    """

    lineage: tuple[LeaderEpochEntry, ...]
    """Leader epochs of what is covered."""

    @property
    def start_offset(self) -> int | None:
        """From here to the end every offset is covered; None when nothing is."""
        ...

    @property
    def end_offset(self) -> int:
        """Last offset covered, inclusive; -1 when nothing is."""
        ...

    def set_lineage(self, lineage: Sequence[LeaderEpochEntry]) -> None:
        """Notes the leader epochs of everything that is kept and that follows."""
        ...

    def append(
        self,
        metadata: RemoteLogSegmentMetadata,
        entries: Sequence[RemoteLogIndexEntry],
        first_offset: int,
        last_offset: int,
    ) -> None:
        """Appends a segment by its chunks; it is the partition's for the offsets given, which are above what is covered."""
        ...

    def cut(self, offset: int) -> None:
        """Forgets segments that reach an offset."""
        ...

    def clean(self, log_start_offset: int) -> None:
        """Deletes files of which nothing lies at or above the log start."""
        ...

    def find_by_offset(self, offset: int) -> CoveredSegment | None:
        """The segment that covers an offset."""
        ...

    def segments_from(self, offset: int) -> Iterator[CoveredSegment]:
        """Segments from the one that covers an offset on, as far as they are wanted; there may be gaps."""
        ...

    @property
    def last_transactional_offset(self) -> int:
        """Up to here, and not beyond, segments may have aborted transactions; -1: none may."""
        ...

    def find_by_timestamp(self, timestamp_ms: int, min_offset: int) -> CoveredSegment | None:
        """The first segment with records at or after a timestamp in a chunk that reaches an offset."""
        ...

    def next_with_transactions(self, offset: int) -> CoveredSegment | None:
        """The first segment that reaches an offset and may have aborted transactions."""
        ...


class RemoteIndexStore(Protocol):
    """The local remote indexes of all partitions. Every method blocks and raises `OSError` when the disk fails."""

    def open(self, tip: TopicIdPartition) -> RemoteIndex:
        """The index of a partition, empty when there is none that is sound."""
        ...

    def delete(self, tip: TopicIdPartition) -> None:
        """Deletes the index of a partition, if there is one."""
        ...

    def delete_unused(self, used: Collection[TopicIdPartition], unused_for_s: float) -> int:
        """Deletes indexes of partitions that are not used and were not written to for a time; answers how many."""
        ...
