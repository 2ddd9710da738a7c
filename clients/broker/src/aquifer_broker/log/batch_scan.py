"""Walking over the batches of a `.log` file by their headers, without reading the records."""

import struct
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.batch_layout import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC
from aquifer_core.formats.record_batch import RecordBatch

from aquifer_broker.log.log_file import LogFile

__all__ = ["BatchPlace", "find_batch", "next_batch", "read_batch"]

_HEADER: Final = struct.Struct(">qiibIhiqqq")
# One read serves the headers of small batches; index entries lie about 4 KiB apart.
_WINDOW_BYTES: Final = 8192


class BatchPlace(NamedTuple):
    """Where a batch lies in its file."""

    position: int
    end_position: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    producer_id: int
    leader_epoch: int


def find_batch(file: LogFile, position: int, offset: int) -> BatchPlace | None:
    """The first batch from a batch border on whose last offset is at or after an offset; None: there is none.

    Raises:
        CorruptRecordError: What lies at a border is no batch.
    """
    window, start = b"", position
    while position + BATCH_HEADER_BYTES <= file.size_bytes:
        if position - start + BATCH_HEADER_BYTES > len(window):
            window, start = file.read_now(position, _WINDOW_BYTES), position
        place = _place(file, window, position - start, position)
        if place is None or place.last_offset >= offset:
            return place
        position = place.end_position
    return None


def next_batch(file: LogFile, position: int) -> BatchPlace | None:
    """The batch at a batch border; None at the end of the file and for a batch that is cut short.

    Raises:
        CorruptRecordError: What lies there is no batch.
    """
    header = file.read_now(position, BATCH_HEADER_BYTES)
    if len(header) < BATCH_HEADER_BYTES:
        return None
    return _place(file, header, 0, position)


def read_batch(file: LogFile, place: BatchPlace) -> RecordBatch:
    """The whole batch at a place.

    Raises:
        CorruptRecordError: It is not one.
    """
    return RecordBatch(file.read_now(place.position, place.end_position - place.position))


def _place(file: LogFile, window: bytes, index: int, position: int) -> BatchPlace | None:
    if len(window) - index < BATCH_HEADER_BYTES:
        return None
    fields = _HEADER.unpack_from(window, index)
    base, length, leader_epoch, magic, _, _, last_delta, _, max_timestamp_ms, producer_id = fields
    if magic != MAGIC or length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES or last_delta < 0:
        raise CorruptRecordError(f"{file.path.name}: no record batch at position {position}")
    end = position + LOG_OVERHEAD_BYTES + length
    if end > file.size_bytes:
        return None
    return BatchPlace(
        position, end, base, base + last_delta, max_timestamp_ms, producer_id, leader_epoch
    )
