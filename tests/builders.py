"""Builds valid segments: record batches, indexes, metadata. Random, but the same for the same seed."""

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from aquifer_core.formats import offset_index, time_index
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.records import Record, encode_batch
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import LogSegmentData, RemoteLogSegmentMetadata

BASE_TIMESTAMP_MS = 1_700_000_000_000


def topic_id_partition(topic: str = "orders", partition: int = 0) -> TopicIdPartition:
    """Make a partition of a new incarnation of a topic."""
    return TopicIdPartition(KafkaUuid.random(), topic, partition)


def record_batch(
    base_offset: int, records: int = 3, value_bytes: int = 100, *, seed: int = 0
) -> bytes:
    """Make one record batch with random values."""
    source = random.Random(f"{seed}-{base_offset}")
    return encode_batch(
        [
            Record(
                offset=base_offset + number,
                timestamp_ms=BASE_TIMESTAMP_MS + base_offset + number,
                value=source.randbytes(value_bytes),
            )
            for number in range(records)
        ]
    )


def log_bytes(
    size_bytes: int,
    *,
    start_offset: int = 0,
    records_per_batch: int = 3,
    value_bytes: int = 100,
    seed: int = 0,
) -> bytes:
    """Make a log of whole batches of at least this size."""
    batches: list[bytes] = []
    total, offset = 0, start_offset
    while total < size_bytes:
        batch = record_batch(offset, records_per_batch, value_bytes, seed=seed)
        batches.append(batch)
        total += len(batch)
        offset += records_per_batch
    return b"".join(batches)


def renumbered_log(size_bytes: int, batch: bytes, start_offset: int = 0) -> bytes:
    """Make a large log fast: one batch again and again, each time with the next base offset."""
    log = bytearray(batch * (size_bytes // len(batch) + 1))
    offset = start_offset
    offsets = next(iter_batches(batch)).last_offset_delta + 1
    for position in range(0, len(log), len(batch)):
        log[position : position + 8] = offset.to_bytes(8, "big")
        offset += offsets
    return bytes(log)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesLogSource:
    """A log in memory that is read in pieces; implements `aquifer_core.segment.LogSource`."""

    data: bytes
    piece_bytes: int = 1 << 20
    announced_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """What it says that its size is."""
        return len(self.data) if self.announced_bytes is None else self.announced_bytes

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        """Yield the pieces."""
        view = memoryview(self.data)
        for start in range(0, len(view), self.piece_bytes):
            yield view[start : start + self.piece_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """A segment to copy, and its log's bytes to compare with."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    log: bytes

    def with_data(self, **changes: Any) -> "BuiltSegment":
        """Return the segment with other parts."""
        return replace(self, data=replace(self.data, **changes))

    def with_metadata(self, **changes: Any) -> "BuiltSegment":
        """Return the segment with other metadata."""
        return replace(self, metadata=replace(self.metadata, **changes))

    @property
    def batches(self) -> list[bytes]:
        """The record batches one by one."""
        return [bytes(batch.data) for batch in iter_batches(self.log)]


def segment(
    log: bytes | None = None,
    *,
    partition: TopicIdPartition | None = None,
    size_bytes: int = 20_000,
    start_offset: int = 100,
    leader_epoch: int = 3,
    piece_bytes: int = 1 << 20,
    transaction_index: bytes | None = None,
    producer_snapshot: bytes | None = b"snapshot",
    seed: int = 0,
) -> BuiltSegment:
    """Make a whole segment with valid indexes; by default of a new partition."""
    if log is None:
        log = log_bytes(size_bytes, start_offset=start_offset, seed=seed)
    batches = list(iter_batches(log))
    last = batches[-1] if batches else None
    end_offset = start_offset if last is None else last.last_offset
    tip = partition or topic_id_partition()
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(tip),
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=1,
        max_timestamp_ms=-1 if last is None else last.max_timestamp_ms,
        event_timestamp_ms=BASE_TIMESTAMP_MS,
        segment_size_bytes=len(log),
        segment_leader_epochs={leader_epoch: start_offset},
        txn_index_empty=transaction_index is None,
    )
    data = LogSegmentData(
        offset_index=b"".join(_offset_entries(log, start_offset)),
        time_index=b"".join(_time_entries(log, start_offset)),
        leader_epochs=f"0\n1\n{leader_epoch} {start_offset}\n".encode(),
        log_segment=BytesLogSource(data=log, piece_bytes=piece_bytes),
        transaction_index=transaction_index,
        producer_snapshot=producer_snapshot,
    )
    return BuiltSegment(metadata=metadata, data=data, log=log)


def _offset_entries(log: bytes, start_offset: int, interval_bytes: int = 4096) -> Iterator[bytes]:
    since = 0
    for batch in iter_batches(log):
        if since > interval_bytes:
            yield offset_index.encode_entry(batch.last_offset - start_offset, batch.position)
            since = 0
        since += batch.size_bytes


def _time_entries(log: bytes, start_offset: int, interval_bytes: int = 4096) -> Iterator[bytes]:
    since = 0
    for batch in iter_batches(log):
        if since > interval_bytes:
            yield time_index.encode_entry(batch.max_timestamp_ms, batch.last_offset - start_offset)
            since = 0
        since += batch.size_bytes


def remote_segment(
    partition: TopicIdPartition,
    start_offset: int,
    end_offset: int,
    leader_epochs: dict[int, int] | None = None,
    **fields: Any,
) -> RemoteLogSegmentMetadata:
    """Make metadata of a new segment in COPY_SEGMENT_STARTED, by default all in leader epoch 0."""
    defaults: dict[str, Any] = {
        "segment_id": RemoteLogSegmentId.generate(partition),
        "start_offset": start_offset,
        "end_offset": end_offset,
        "broker_id": 1,
        "max_timestamp_ms": BASE_TIMESTAMP_MS + end_offset,
        "event_timestamp_ms": BASE_TIMESTAMP_MS + end_offset,
        "segment_size_bytes": 1024,
        "segment_leader_epochs": leader_epochs or {0: start_offset},
        "txn_index_empty": True,
    }
    return RemoteLogSegmentMetadata(**(defaults | fields))
