"""A RemoteStorageManager in memory, for tests of what uses one."""

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from aquifer_core.errors import (
    CorruptIndexError,
    CorruptRecordError,
    CorruptSegmentError,
    ErrorReason,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PositionOutOfRangeError,
    RemoteResourceNotFoundError,
)
from aquifer_core.formats import transaction_index
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.record_batch import (
    RecordBatch,
    complete_batches_size,
    iter_batches,
    validate_crc,
)
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import (
    CopyResult,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    VerifyFinding,
    VerifyProgress,
)

_CUSTOM_METADATA: Final = b"in memory"
_PIECE_BYTES: Final = 1 << 20
_PART_NAMES: Final = {
    IndexType.OFFSET: "offset_index",
    IndexType.TIMESTAMP: "time_index",
    IndexType.PRODUCER_SNAPSHOT: "producer_snapshot",
    IndexType.TRANSACTION: "transaction_index",
    IndexType.LEADER_EPOCH: "leader_epochs",
    IndexType.REMOTE_LOG_INDEX: "remote_log_index",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    metadata: RemoteLogSegmentMetadata
    log: bytes
    indexes: Mapping[IndexType, bytes]
    log_sha256: str

    @property
    def stored_bytes(self) -> int:
        return len(self.log) + sum(len(index) for index in self.indexes.values())


class InMemoryRemoteStorageManager(RemoteStorageManager):
    """Keeps segments in a dictionary and holds to the role's contract.

    Attributes:
        failures: errors to raise, by method name, one for each call from the first on; an entry None lets its call through.
        calls: names of the methods called, in order.
    """

    def __init__(self) -> None:
        self.failures: dict[str, deque[Exception | None]] = {}
        self.calls: list[str] = []
        self._segments: dict[RemoteLogSegmentId, _Stored] = {}

    def fail(self, method: str, *errors: Exception | None) -> None:
        """Make the next calls of a method raise."""
        self.failures.setdefault(method, deque()).extend(errors)

    def corrupt_log(self, segment_id: RemoteLogSegmentId, position: int) -> None:
        """Change a byte of a stored log."""
        stored = self._segments[segment_id]
        log = bytearray(stored.log)
        log[position] ^= 0xFF
        self._segments[segment_id] = _Stored(
            metadata=stored.metadata,
            log=bytes(log),
            indexes=stored.indexes,
            log_sha256=stored.log_sha256,
        )

    @property
    def segment_ids(self) -> frozenset[RemoteLogSegmentId]:
        """What is stored."""
        return frozenset(self._segments)

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Accepts anything."""
        self._called("configure")

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        """Stores a segment."""
        self._called("copy_log_segment_data")
        _check(metadata, data)
        log = b"".join([bytes(piece) async for piece in data.log_segment.chunks()])
        stored = self._segments.get(metadata.segment_id)
        if stored is None:
            if len(log) != metadata.segment_size_bytes:
                raise InvalidRequestError(
                    f"{metadata.segment_size_bytes} bytes were announced, {len(log)} came"
                )
            _check_log(metadata, log)
            stored = _stored(metadata, data, log)
            self._segments[metadata.segment_id] = stored
        return CopyResult(
            custom_metadata=_CUSTOM_METADATA,
            stored_bytes=stored.stored_bytes,
            log_sha256=stored.log_sha256,
            remote_log_index=stored.indexes[IndexType.REMOTE_LOG_INDEX],
        )

    async def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """The log's bytes of a range of positions."""
        self._called("fetch_log_segment")
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise InvalidRequestError(
                f"positions {start_position} to {end_position} are not a range",
                reason=ErrorReason.INVALID_OFFSET_RANGE,
            )
        log = self._intact(metadata).log
        if start_position >= len(log):
            raise PositionOutOfRangeError(
                f"position {start_position} is past the end, {len(log)}",
                metadata={"position": str(start_position), "sizeBytes": str(len(log))},
            )
        end = len(log) if end_position is None else min(end_position + 1, len(log))
        for start in range(start_position, end, _PIECE_BYTES):
            yield memoryview(log)[start : min(start + _PIECE_BYTES, end)]

    async def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncIterator[bytes | memoryview]:
        """Whole record batches from an offset."""
        self._called("fetch_records")
        if max_bytes <= 0:
            raise InvalidRequestError(f"max_bytes is {max_bytes}; it must be positive")
        if not metadata.start_offset <= fetch_offset <= metadata.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {fetch_offset} is outside the segment",
                metadata={"offset": str(fetch_offset)},
            )
        log = self._intact(metadata).log
        left_bytes = max_bytes
        for batch in iter_batches(log):
            if batch.last_offset < fetch_offset:
                continue
            is_first = left_bytes == max_bytes
            if batch.size_bytes > left_bytes and not (is_first and min_one_batch):
                return
            yield batch.data
            left_bytes -= batch.size_bytes
            if left_bytes <= 0:
                return

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A whole index."""
        self._called("fetch_index")
        index = self._get(metadata).indexes.get(index_type)
        if index is None:
            raise RemoteResourceNotFoundError(
                f"segment {metadata.segment_id.id} has no {index_type.name} index",
                reason=ErrorReason.INDEX_NOT_FOUND,
                metadata={
                    "segmentId": str(metadata.segment_id.id),
                    "indexType": index_type.name,
                },
            )
        return index

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Forgets a segment."""
        self._called("delete_log_segment_data")
        self._segments.pop(metadata.segment_id, None)

    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """What is stored of a segment."""
        self._called("describe_segment")
        return _described(self._get(metadata))

    async def verify_segment(
        self, metadata: RemoteLogSegmentMetadata
    ) -> AsyncIterator[VerifyProgress]:
        """Compares the log with its SHA-256."""
        self._called("verify_segment")
        stored = self._get(metadata)
        findings: tuple[VerifyFinding, ...] = ()
        if hashlib.sha256(stored.log).hexdigest() != stored.log_sha256:
            findings = (
                VerifyFinding(
                    part="log", chunk=0, position=0, message="it does not match its SHA-256"
                ),
            )
        total = stored.stored_bytes
        yield VerifyProgress(verified_bytes=total, total_bytes=total, findings=findings, done=True)

    async def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """Everything stored, in the order of keys."""
        self._called("list_stored_segments")
        found = [_described(stored) for stored in self._segments.values()]
        for segment in sorted(found, key=lambda stored: stored.object_keys):
            if segment.object_keys[0].startswith(prefix):
                yield segment

    async def close(self) -> None:
        """Keeps everything, so that a test can still look."""
        self._called("close")

    def _called(self, method: str) -> None:
        self.calls.append(method)
        failures = self.failures.get(method)
        error = failures.popleft() if failures else None
        if error is not None:
            raise error

    def _get(self, metadata: RemoteLogSegmentMetadata) -> _Stored:
        stored = self._segments.get(metadata.segment_id)
        if stored is None:
            raise RemoteResourceNotFoundError(
                f"segment {metadata.segment_id} is not in the store",
                metadata={"segmentId": str(metadata.segment_id.id)},
            )
        return stored

    def _intact(self, metadata: RemoteLogSegmentMetadata) -> _Stored:
        stored = self._get(metadata)
        if hashlib.sha256(stored.log).hexdigest() != stored.log_sha256:
            segment_id = str(metadata.segment_id.id)
            raise CorruptSegmentError(
                f"segment {segment_id} is damaged",
                metadata={"segmentId": segment_id, "chunk": "0", "position": "0"},
            )
        return stored


def _check(metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
    if data.log_segment.size_bytes != metadata.segment_size_bytes:
        raise InvalidRequestError(
            f"the segment has {metadata.segment_size_bytes} bytes by its metadata, its log has "
            f"{data.log_segment.size_bytes}",
            reason=ErrorReason.INVALID_SEGMENT,
        )
    try:
        OffsetIndex(data.offset_index, metadata.start_offset).sanity_check()
        TimeIndex(data.time_index, metadata.start_offset).sanity_check()
        if data.transaction_index is not None:
            transaction_index.sanity_check(data.transaction_index, metadata.start_offset)
    except CorruptIndexError as error:
        raise CorruptIndexError(
            error.message, metadata={"segmentId": str(metadata.segment_id.id)}
        ) from error


def _check_log(metadata: RemoteLogSegmentMetadata, log: bytes) -> None:
    if complete_batches_size(log) != len(log):
        raise CorruptRecordError("the log ends inside a record batch")
    last_offset = metadata.start_offset - 1
    for batch in iter_batches(log):
        validate_crc(batch)
        if batch.base_offset < metadata.start_offset or batch.last_offset > metadata.end_offset:
            raise InvalidRequestError(
                f"{batch} lies outside the segment", reason=ErrorReason.INVALID_SEGMENT
            )
        if batch.base_offset <= last_offset:
            raise CorruptRecordError(f"{batch} follows offset {last_offset}")
        last_offset = batch.last_offset


def _stored(metadata: RemoteLogSegmentMetadata, data: LogSegmentData, log: bytes) -> _Stored:
    indexes: dict[IndexType, bytes | None] = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
        IndexType.TRANSACTION: data.transaction_index or None,
        IndexType.LEADER_EPOCH: data.leader_epochs,
        IndexType.REMOTE_LOG_INDEX: RemoteLogIndex(_chunks(metadata, log)).encode(),
    }
    return _Stored(
        metadata=metadata,
        log=log,
        indexes=MappingProxyType({k: v for k, v in indexes.items() if v is not None}),
        log_sha256=hashlib.sha256(log).hexdigest(),
    )


def _chunks(metadata: RemoteLogSegmentMetadata, log: bytes) -> Iterator[RemoteLogIndexEntry]:
    """The whole log as one chunk."""
    batches: list[RecordBatch] = list(iter_batches(log))
    if batches:
        yield RemoteLogIndexEntry(
            first_offset=batches[0].base_offset,
            last_offset=batches[-1].last_offset,
            first_timestamp_ms=batches[0].base_timestamp_ms,
            last_timestamp_ms=max(batch.max_timestamp_ms for batch in batches),
            data_length_bytes=len(log),
            data_id=RemoteDataId(
                segment_id=metadata.segment_id.id,
                position=0,
                stored_length_bytes=len(log),
                crc32c=crc32c(log),
            ),
        )


def _described(stored: _Stored) -> StoredSegment:
    metadata = stored.metadata
    tip = metadata.topic_id_partition
    base = (
        f"{tip.topic}-{tip.topic_id}/{tip.partition}/"
        f"{metadata.start_offset:020d}-{metadata.segment_id.id}"
    )
    digests = {
        _PART_NAMES[index_type]: hashlib.sha256(index).hexdigest()
        for index_type, index in stored.indexes.items()
    }
    return StoredSegment(
        metadata=metadata,
        object_keys=(f"{base}.log", f"{base}.indexes", f"{base}.manifest"),
        stored_bytes=stored.stored_bytes,
        original_bytes=len(stored.log),
        chunk_count=1 if stored.log else 0,
        codec="none",
        key_id=None,
        sha256={"log": stored.log_sha256, **digests},
        writer_version="fake",
        custom_metadata=_CUSTOM_METADATA,
    )
