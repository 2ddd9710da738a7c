"""Metadata of remote log segments and the data of a segment to copy."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol, Self

from aquifer_core.errors import ErrorReason, InvalidRequestError
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

MAX_CUSTOM_METADATA_BYTES = 128


class IndexType(IntEnum):
    """Indexes stored with a segment; 0 to 4 are Kafka's, in Kafka's order."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4
    REMOTE_LOG_INDEX = 5


class IsolationLevel(IntEnum):
    """What a consumer sees of transactions; values are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, reason=ErrorReason.INVALID_SEGMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata:
    """Everything that is known about one copy of a log segment (K-1.3).

    Attributes:
        segment_id: names the copy.
        start_offset: first offset, inclusive.
        end_offset: last offset, inclusive: the next local segment's base offset - 1, also when the file ends earlier.
        broker_id: the broker that wrote the last event of this segment.
        max_timestamp_ms: largest record timestamp; -1 when unknown.
        event_timestamp_ms: when the last event was written.
        segment_size_bytes: bytes of the `.log` file alone.
        segment_leader_epochs: leader epoch -> first offset of it inside this segment; never empty. The first one starts at
            `start_offset`: where it is given with a higher offset, records below the log start precede it, whose epochs a leader
            forgets (KIP-107), and they count to it.
        custom_metadata: opaque bytes of the RemoteStorageManager, at most 128.
        txn_index_empty: True when the segment surely has no aborted transaction.

    Raises:
        InvalidRequestError: a value breaks one of these rules.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: Mapping[int, int]
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        where = f"segment {self.segment_id.id}"
        if self.start_offset < 0:
            raise _invalid(f"{where}: start offset {self.start_offset} is negative")
        if self.end_offset < self.start_offset:
            raise _invalid(
                f"{where}: end offset {self.end_offset} is below start offset {self.start_offset}"
            )
        if self.segment_size_bytes < 0:
            raise _invalid(f"{where}: size {self.segment_size_bytes} is negative")
        object.__setattr__(self, "segment_leader_epochs", self._checked_epochs(where))
        if self.custom_metadata is not None and len(self.custom_metadata) > (
            MAX_CUSTOM_METADATA_BYTES
        ):
            raise _invalid(
                f"{where}: custom metadata has {len(self.custom_metadata)} bytes, at most 128"
            )

    def _checked_epochs(self, where: str) -> Mapping[int, int]:
        epochs = dict(sorted(self.segment_leader_epochs.items()))
        if not epochs:
            raise _invalid(f"{where}: no leader epochs")
        offsets = list(epochs.values())
        if offsets[0] < self.start_offset:
            raise _invalid(
                f"{where}: the first leader epoch starts at {offsets[0]}, below start offset {self.start_offset}"
            )
        if any(later <= earlier for earlier, later in pairwise(offsets)):
            raise _invalid(f"{where}: leader epoch offsets {offsets} do not rise")
        if offsets[-1] > self.end_offset:
            raise _invalid(
                f"{where}: a leader epoch starts at {offsets[-1]}, past end offset {self.end_offset}"
            )
        epochs[next(iter(epochs))] = self.start_offset
        return MappingProxyType(epochs)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition that the segment belongs to."""
        return self.segment_id.topic_id_partition

    def epoch_ranges(self) -> dict[int, tuple[int, int]]:
        """Leader epoch -> (first, last) offset of it inside this segment, both inclusive."""
        epochs = list(self.segment_leader_epochs.items())
        ends = [start - 1 for _, start in epochs[1:]] + [self.end_offset]
        return {epoch: (start, end) for (epoch, start), end in zip(epochs, ends, strict=True)}

    def with_update(self, update: "RemoteLogSegmentMetadataUpdate") -> Self:
        """The metadata after an update: state, broker, event time and custom metadata are replaced, also by none.

        Raises:
            InvalidRequestError: the update is for another segment.
        """
        if update.segment_id != self.segment_id:
            raise _invalid(f"update of {update.segment_id} applied to {self.segment_id}")
        return replace(
            self,
            state=update.state,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate:
    """A state change of one segment. Custom metadata replaces what is stored, also when it is None.

    Attributes:
        reason: why, for the history ("copied", "retention time", ...); not part of Kafka's event.
    """

    segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    broker_id: int
    custom_metadata: bytes | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata:
    """A step of the deletion of a partition's remote data."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


class LogSource(Protocol):
    """The bytes of a `.log` file to copy. Read once, front to back."""

    @property
    def size_bytes(self) -> int:
        """Exact number of bytes that `chunks` yields."""
        ...

    def chunks(self) -> AsyncIterator[bytes | memoryview]:
        """The file's bytes in order, in pieces of any size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegmentData:
    """What is copied of a segment. Kafka's `LogSegmentData` with the small parts in memory (K-1.3).

    Attributes:
        offset_index, time_index: the files' bytes, trimmed to their entries.
        transaction_index: None when the segment has no aborted transaction.
        producer_snapshot: the snapshot named by the next segment's base offset; None for logs older than snapshots.
        leader_epochs: the leader epoch checkpoint text from the log's beginning up to this segment's end.
        log_segment: the `.log` file.
    """

    offset_index: bytes
    time_index: bytes
    leader_epochs: bytes
    log_segment: LogSource
    transaction_index: bytes | None = None
    producer_snapshot: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment as the store describes it: its manifest.

    Attributes:
        metadata: as it was when copied.
        object_keys: every object that belongs to the segment.
        stored_bytes: bytes in the store, all objects.
        original_bytes: bytes of the `.log` file.
        chunk_count: chunks of the `.log` object.
        codec: compression of the chunks, "none" for stored as they were.
        key_id: encryption key, None when not encrypted.
        sha256: part name -> hex digest of its original bytes.
        writer_version: what wrote it.
        custom_metadata: what the copy answered, to rebuild metadata with; not in `metadata`.
    """

    metadata: RemoteLogSegmentMetadata
    object_keys: tuple[str, ...]
    stored_bytes: int
    original_bytes: int
    chunk_count: int
    codec: str
    key_id: str | None
    sha256: Mapping[str, str]
    writer_version: str
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """Answer of a copy.

    Attributes:
        custom_metadata: opaque bytes to keep with the segment's metadata, at most 128; None for nothing.
        stored_bytes: bytes written to the store, all objects together.
        log_sha256: hex SHA-256 of the original `.log` bytes.
        remote_log_index: that was stored with the segment; None when it is large or the copy only repeats an earlier one: it can be
            fetched then.
    """

    custom_metadata: bytes | None
    stored_bytes: int
    log_sha256: str
    remote_log_index: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyFinding:
    """Something wrong with a stored segment."""

    part: str
    chunk: int | None
    position: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProgress:
    """Progress of a verification; the last one has `done`."""

    verified_bytes: int
    total_bytes: int
    findings: tuple[VerifyFinding, ...] = field(default=())
    done: bool = False
