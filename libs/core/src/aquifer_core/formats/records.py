"""Records inside a batch: decoding, and building whole batches (K-6.2)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.batch_layout import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CONTROL_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CompressionCodec,
    TimestampType,
)
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.record_batch import RecordBatch
from aquifer_core.formats.varint import append_varint, read_varint, read_varlong

__all__ = ["Record", "decode_records", "encode_batch"]

# Header keys are UTF-8, but brokers do not enforce it; this keeps foreign bytes intact both ways.
_KEY_ERRORS: Final = "surrogateescape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record.

    Attributes:
        offset: Absolute offset.
        timestamp_ms: CreateTime or LogAppendTime, as the batch says.
        key: Key bytes; none when absent.
        value: Value bytes; none for a tombstone.
        headers: Pairs of key and value in order; keys may repeat.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode_records(
    batch: RecordBatch,
    decompress: Callable[[CompressionCodec, memoryview], bytes] | None = None,
) -> Iterator[Record]:
    """Yield the records of a batch.

    Args:
        batch: The batch; its CRC is not checked here.
        decompress: Called once with the codec and the compressed records when a codec is set;
            whatever it raises becomes a CorruptRecordError.

    Raises:
        CorruptRecordError: The records do not match the header or are malformed.
        ValueError: The batch is compressed and no decompressor was given.
    """
    data = _records_bytes(batch, decompress)
    if batch.record_count < 0:
        raise _corrupt(batch, f"record count {batch.record_count} is negative")
    append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    fixed_timestamp_ms = batch.max_timestamp_ms if append_time else None
    position = 0
    for number in range(batch.record_count):
        try:
            record, position = _decode_record(data, position, batch, fixed_timestamp_ms)
        except IndexError as error:
            raise _corrupt(batch, f"record {number} is cut short") from error
        yield record
    if position != len(data):
        raise _corrupt(batch, f"{len(data) - position} bytes are left after the last record")


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    partition_leader_epoch: int = -1,
    codec: CompressionCodec = CompressionCodec.NONE,
    compress: Callable[[bytes], bytes] | None = None,
    log_append_time_ms: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encode records as one batch of magic 2.

    Args:
        records: At least one, in ascending order of offset.
        base_offset: Base offset of the batch; the first record's offset by default.
        partition_leader_epoch: Leader epoch; -1 as producers send it.
        codec: Codec of the records; anything but NONE needs `compress`.
        compress: Compresses the encoded records with that codec.
        log_append_time_ms: When given, the batch carries LogAppendTime with this timestamp.
        is_transactional: Sets the transactional bit.
        is_control: Sets the control bit.
        producer_id: Producer id, or -1.
        producer_epoch: Producer epoch, or -1.
        base_sequence: Sequence of the first record, or -1.

    Raises:
        ValueError: There is no record, or a codec comes without `compress`.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base = records[0].offset if base_offset is None else base_offset
    base_timestamp_ms = records[0].timestamp_ms
    payload = b"".join(_encode_record(record, base, base_timestamp_ms) for record in records)
    if codec is not CompressionCodec.NONE:
        if compress is None:
            raise ValueError(f"codec {codec.name} needs a compressor")
        payload = compress(payload)
    attributes = int(codec) | TRANSACTIONAL_MASK * is_transactional | CONTROL_MASK * is_control
    max_timestamp_ms = max(record.timestamp_ms for record in records)
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_MASK
        max_timestamp_ms = log_append_time_ms
    length = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)

    def header(crc: int) -> bytes:
        return BATCH_HEADER.pack(
            base,
            length,
            partition_leader_epoch,
            MAGIC,
            crc,
            attributes,
            records[-1].offset - base,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )

    return header(crc32c(payload, crc32c(header(0)[ATTRIBUTES_POSITION:]))) + payload


def _records_bytes(
    batch: RecordBatch,
    decompress: Callable[[CompressionCodec, memoryview], bytes] | None,
) -> bytes:
    codec = batch.codec
    if codec is CompressionCodec.NONE:
        return bytes(batch.records_data)
    if decompress is None:
        raise ValueError(f"batch at offset {batch.base_offset} needs a decompressor: {codec.name}")
    try:
        return bytes(decompress(codec, batch.records_data))
    except Exception as error:
        raise _corrupt(batch, f"{codec.name} data cannot be decompressed: {error}") from error


def _decode_record(
    data: bytes, position: int, batch: RecordBatch, fixed_timestamp_ms: int | None
) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise _corrupt(batch, f"record length {length} does not fit")
    timestamp_delta, position = read_varlong(data, position + 1)  # after the attributes, unused
    offset_delta, position = read_varint(data, position)
    key, position = _read_nullable(data, position, batch)
    value, position = _read_nullable(data, position, batch)
    headers, position = _read_headers(data, position, batch)
    if position != end:
        raise _corrupt(batch, f"record of {length} bytes ends {position - end} bytes off")
    timestamp_ms = fixed_timestamp_ms
    if timestamp_ms is None:
        timestamp_ms = batch.base_timestamp_ms + timestamp_delta
    record = Record(
        offset=batch.base_offset + offset_delta,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )
    return record, end


def _read_headers(
    data: bytes, position: int, batch: RecordBatch
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if count < 0:
        raise _corrupt(batch, f"header count {count} is negative")
    headers = []
    for _ in range(count):
        key, position = _read_nullable(data, position, batch)
        if key is None:
            raise _corrupt(batch, "a header has no key")
        value, position = _read_nullable(data, position, batch)
        headers.append((key.decode("utf-8", _KEY_ERRORS), value))
    return tuple(headers), position


def _read_nullable(data: bytes, position: int, batch: RecordBatch) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise _corrupt(batch, f"a field of {length} bytes does not fit")
    return data[position:end], end


def _encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    body = bytearray(1)
    append_varint(body, record.timestamp_ms - base_timestamp_ms)
    append_varint(body, record.offset - base_offset)
    _append_nullable(body, record.key)
    _append_nullable(body, record.value)
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_nullable(body, key.encode("utf-8", _KEY_ERRORS))
        _append_nullable(body, value)
    out = bytearray()
    append_varint(out, len(body))
    return bytes(out + body)


def _append_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        append_varint(out, -1)
        return
    append_varint(out, len(data))
    out += data


def _corrupt(batch: RecordBatch, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"record batch at offset {batch.base_offset}: {what}")
