"""The abstract roles of tiered storage: RemoteStorageManager and RemoteLogMetadataManager (SR-13, SR-14).

Every implementation can stand on either side of the wire: `services/` has the real ones, `clients/python` the gRPC ones,
`aquifer_core.fakes` the in-memory ones. One contract suite per role runs over all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from aquifer_core.metadata_manager import PartitionChange, RemoteLogMetadataManager, SegmentEvent
from aquifer_core.retention_values import (
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
)
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    VerifyProgress,
)

__all__ = [
    "Clock",
    "PartitionChange",
    "RemoteLogMetadataManager",
    "RemoteStorageManager",
    "RetentionCandidate",
    "RetentionPlan",
    "RetentionPolicy",
    "RetentionReason",
    "SegmentEvent",
]


class Clock(Protocol):
    """Wall clock and monotonic clock, so that time can be faked."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits by this clock."""
        ...


class RemoteStorageManager(ABC):
    """Segment bytes in remote storage (Kafka's `RemoteStorageManager`, K-1.1).

    Every method may be called concurrently and raises `RemoteStorageUnavailableError` when the store does not answer.
    """

    @abstractmethod
    async def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, before anything else, with the properties of the role's prefix as given (SR-4)."""

    @abstractmethod
    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        """Copies a segment with its indexes; what was copied is readable before this returns.

        Idempotent for one segment id: a repeat overwrites nothing and answers as the first did. A failed copy deletes what it
        wrote, as far as the store lets it.

        Raises:
            InvalidRequestError: sizes do not match the bytes, or offsets lie outside the segment.
            CorruptRecordError: the log is not a sequence of whole, sound record batches whose offsets rise.
            CorruptIndexError: an index is malformed.
            ConcurrentUpdateError: an earlier copy of this id failed and is being deleted; copy with a new id.
        """

    @abstractmethod
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """The original file's bytes from `start_position` to `end_position` (inclusive; None: to the end), in order.

        Lazy: little is read ahead of the consumer, and closing the iterator stops the transfer. An end past the file's end is cut.

        Raises:
            InvalidRequestError: the positions are no range (reason INVALID_OFFSET_RANGE).
            RemoteResourceNotFoundError: the segment is not in the store.
            PositionOutOfRangeError: `start_position` is past the end.
            CorruptSegmentError: stored bytes do not match their checksum.
        """

    @abstractmethod
    def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """Whole record batches of this segment, from the one that holds `fetch_offset` (or the next one after a hole).

        At most `max_bytes`; a first batch that is larger is returned alone with `min_one_batch` and not at all without it. Yields
        nothing when no batch at or after the offset is left. Pieces may cut batches, their concatenation does not.
        `next_segment` is what a sequential reader asks for next: a manager that reads ahead may begin with it.

        Raises:
            InvalidRequestError: `max_bytes` is not positive.
            RemoteResourceNotFoundError: the segment is not in the store.
            OffsetOutOfRangeError: the offset is outside the segment.
            CorruptSegmentError: stored bytes do not match their checksum.
        """

    @abstractmethod
    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A whole index.

        Raises:
            RemoteResourceNotFoundError: no such segment, or it has no such index (reason INDEX_NOT_FOUND); never empty bytes.
        """

    @abstractmethod
    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes every object of the segment. Idempotent: already gone is success."""

    @abstractmethod
    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """What the store's manifest says of the segment.

        Raises:
            RemoteResourceNotFoundError: the segment, or its log, is not in the store.
        """

    @abstractmethod
    def verify_segment(self, metadata: RemoteLogSegmentMetadata) -> AsyncIterator[VerifyProgress]:
        """Reads everything back and checks every checksum; findings are reported, not raised.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
        """

    @abstractmethod
    def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """Segments found by listing the store, from manifests alone. `prefix` narrows the object keys."""

    @abstractmethod
    async def close(self) -> None:
        """Releases everything; idempotent."""
