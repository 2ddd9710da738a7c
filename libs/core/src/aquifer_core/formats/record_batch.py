"""Record batch v2: a view over a buffer, iteration, checksum and in-place patches (K-6.2, K-6.8)."""

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.batch_layout import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    LEADER_EPOCH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    MIN_STORED_LENGTH,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CompressionCodec,
    TimestampType,
)
from aquifer_core.formats.checksum import Buffer, crc32c

__all__ = [
    "BATCH_HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "BatchHeader",
    "CompressionCodec",
    "RecordBatch",
    "TimestampType",
    "check_crc",
    "complete_batches_size",
    "iter_batches",
    "iter_headers",
    "patch_header",
    "patch_max_timestamp_and_type",
    "validate_crc",
]

BatchHeader: TypeAlias = tuple[int, ...]
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and largest timestamp, producer id and epoch,
base sequence, number of records."""

_LENGTH: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")

_MAX_SEQUENCE: Final = 0x7FFFFFFF
_CODECS: Final = tuple(CompressionCodec)


class RecordBatch:
    """One record batch inside a buffer, not copied.

    The view is only valid while the buffer's bytes stay as they are; header fields are read once,
    when the batch is made.
    """

    __slots__ = ("_buffer", "_header", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Read the header of the batch at a position.

        Raises:
            CorruptRecordError: No complete, well-formed batch of magic 2 starts there.
        """
        view = memoryview(buffer)
        found = next(iter_headers(view, position), None)
        if found is None:
            raise CorruptRecordError(f"incomplete record batch at position {position}")
        self._buffer = view
        self._header = found[0]
        self.position = position

    @classmethod
    def _of(cls, view: memoryview, position: int, header: BatchHeader) -> "RecordBatch":
        batch = cls.__new__(cls)
        batch._buffer = view
        batch._header = header
        batch.position = position
        return batch

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, "
            f"position={self.position}, size_bytes={self.size_bytes})"
        )

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self._header[0]

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self._header[1]

    @property
    def partition_leader_epoch(self) -> int:
        """Epoch of the leader that appended the batch."""
        return self._header[2]

    @property
    def magic(self) -> int:
        """Format version; always 2."""
        return self._header[3]

    @property
    def crc(self) -> int:
        """Stored CRC-32C, unsigned."""
        return self._header[4]

    @property
    def attributes(self) -> int:
        """Raw attribute bits."""
        return self._header[5]

    @property
    def codec(self) -> CompressionCodec:
        """Codec of the records.

        Raises:
            CorruptRecordError: The codec number is not one of Kafka's.
        """
        number = self._header[5] & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptRecordError(f"unknown codec {number} at offset {self.base_offset}")
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        if self._header[5] & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self._header[5] & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records."""
        return bool(self._header[5] & CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp_ms` is the delete horizon."""
        return bool(self._header[5] & DELETE_HORIZON_MASK)

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus base offset."""
        return self._header[6]

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self._header[0] + self._header[6]

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self._header[0] + self._header[6] + 1

    @property
    def base_timestamp_ms(self) -> int:
        """Timestamp that the records' deltas refer to."""
        return self._header[7]

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the batch; -1 when unknown."""
        return self._header[8]

    @property
    def producer_id(self) -> int:
        """Producer id; -1 when the producer is not idempotent."""
        return self._header[9]

    @property
    def producer_epoch(self) -> int:
        """Producer epoch; -1 when the producer is not idempotent."""
        return self._header[10]

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record; -1 when there is none."""
        return self._header[11]

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping to 0 after 2^31 - 1; -1 when there is none."""
        base = self._header[11]
        if base < 0:
            return -1
        return (base + self._header[6]) & _MAX_SEQUENCE

    @property
    def record_count(self) -> int:
        """Number of records; may be below the offset range after compaction."""
        return self._header[12]

    @property
    def data(self) -> memoryview:
        """The whole batch, header included."""
        return self._buffer[self.position : self.position + self.size_bytes]

    @property
    def records_data(self) -> memoryview:
        """The bytes after the header, still compressed when a codec is set."""
        start = self.position + BATCH_HEADER_BYTES
        return self._buffer[start : self.position + self.size_bytes]


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """Yield the complete batches from a position on, without copying.

    A partial batch at the end is legal and ends the iteration (K-6.8). CRCs are not checked.

    Raises:
        CorruptRecordError: A stored length is impossible or a magic is not supported.
    """
    view = memoryview(buffer)
    for header, start, _ in iter_headers(view, position):
        yield RecordBatch._of(view, start, header)


def iter_headers(view: memoryview, position: int = 0) -> Iterator[tuple[BatchHeader, int, int]]:
    """Yield the fields, start and end of the complete batches from a position on; as `iter_batches`, at half the cost.

    Raises:
        CorruptRecordError: A stored length is impossible or a magic is not supported.
    """
    available, unpack = len(view), BATCH_HEADER.unpack_from
    while position + BATCH_HEADER_BYTES <= available:
        header = unpack(view, position)
        length = header[1]
        if length < MIN_STORED_LENGTH:
            raise CorruptRecordError(f"batch length {length} at position {position} is too small")
        end = position + LOG_OVERHEAD_BYTES + length
        if end > available:
            return
        if header[3] != MAGIC or length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise _malformed(header[3], length, position)
        yield header, position, end
        position = end
    _refuse_short(view, position, available - position)


def complete_batches_size(buffer: Buffer, position: int = 0) -> int:
    """Return how many bytes from a position on are complete batches.

    Raises:
        CorruptRecordError: A stored length is impossible.
    """
    total = len(buffer)
    current = position
    while current + BATCH_PREFIX.size <= total:
        (length,) = _LENGTH.unpack_from(buffer, current + 8)
        if length < MIN_STORED_LENGTH:
            raise CorruptRecordError(f"batch length {length} at position {current} is too small")
        following = current + LOG_OVERHEAD_BYTES + length
        if following > total:
            break
        current = following
    return current - position


def validate_crc(batch: RecordBatch) -> None:
    """Check the stored CRC-32C against the bytes.

    Raises:
        CorruptRecordError: They differ.
    """
    check_crc(batch.data, batch._header)


def check_crc(batch: memoryview, header: BatchHeader) -> None:
    """Check the stored CRC-32C of the whole batch that has a header against its bytes.

    Raises:
        CorruptRecordError: They differ.
    """
    computed = crc32c(batch[ATTRIBUTES_POSITION:])
    if computed != header[4]:
        raise CorruptRecordError(
            f"record batch at offset {header[0]}: "
            f"stored crc {header[4]:#010x}, computed {computed:#010x}"
        )


def patch_header(
    buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Set base offset and leader epoch of the batch at a position, in place.

    Both lie outside the CRC, which stays valid. Views made before keep the old values.
    """
    _LONG.pack_into(buffer, position, base_offset)
    _INT.pack_into(buffer, position + LEADER_EPOCH_POSITION, partition_leader_epoch)


def patch_max_timestamp_and_type(
    buffer: bytearray | memoryview,
    position: int,
    max_timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.LOG_APPEND_TIME,
) -> None:
    """Set the maximal timestamp and the timestamp type in place and recompute the CRC.

    With LogAppendTime every record's timestamp is the maximal one, so no record is touched.
    """
    (length,) = _LENGTH.unpack_from(buffer, position + 8)
    (attributes,) = _SHORT.unpack_from(buffer, position + ATTRIBUTES_POSITION)
    attributes &= ~TIMESTAMP_TYPE_MASK
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    _SHORT.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _LONG.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    end = position + LOG_OVERHEAD_BYTES + length
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)


def _refuse_short(view: memoryview, position: int, available: int) -> None:
    """Judge fewer bytes than a header: too short to be complete, or corrupt."""
    if available < BATCH_PREFIX.size:
        return
    _, length, _, magic = BATCH_PREFIX.unpack_from(view, position)
    if length < MIN_STORED_LENGTH:
        raise CorruptRecordError(f"batch length {length} at position {position} is too small")
    if LOG_OVERHEAD_BYTES + length <= available:
        raise _malformed(magic, length, position)


def _malformed(magic: int, length: int, position: int) -> CorruptRecordError:
    if magic != MAGIC:
        return CorruptRecordError(f"unsupported magic {magic} at position {position}")
    return CorruptRecordError(
        f"batch length {length} at position {position} is too small for the header of magic 2"
    )
