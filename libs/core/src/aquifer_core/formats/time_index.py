"""Time index: timestamp to offset, 12 bytes an entry (K-6.3)."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer

__all__ = ["TIME_INDEX_ENTRY_BYTES", "TimeIndex", "TimestampOffset", "encode_entry"]

_ENTRY: Final = struct.Struct(">qi")
_TIMESTAMP: Final = struct.Struct(">q")
_RELATIVE_OFFSET: Final = struct.Struct(">i")
_MAX_INT: Final = 0x7FFFFFFF

TIME_INDEX_ENTRY_BYTES: Final = _ENTRY.size


class TimestampOffset(NamedTuple):
    """Largest timestamp so far and the last offset of the batch that holds it."""

    timestamp_ms: int
    offset: int


class TimeIndex:
    """Reader over the bytes of a time index; entries are unpacked only when needed.

    Bytes of an incomplete last entry are not read; `sanity_check` reports them.
    """

    __slots__ = ("_count", "_data", "base_offset")

    def __init__(self, data: Buffer, base_offset: int) -> None:
        """Look at an index.

        Args:
            data: The index without preallocated zeros behind its entries.
            base_offset: Base offset of the segment, which entries are relative to.
        """
        self._data = data
        self._count = len(data) // TIME_INDEX_ENTRY_BYTES
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> TimestampOffset:
        if not 0 <= index < self._count:
            raise IndexError(index)
        timestamp_ms, relative = _ENTRY.unpack_from(self._data, index * TIME_INDEX_ENTRY_BYTES)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield all entries in file order."""
        return (self[index] for index in range(self._count))

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) when there is none."""
        return self[self._count - 1] if self._count else TimestampOffset(-1, self.base_offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the greatest entry at or below a timestamp; (-1, base offset) when none is.

        A search for the first record at or after the timestamp may start at the offset returned.
        """
        slot = self._first_slot(_TIMESTAMP, 0, timestamp_ms + 1) - 1
        return self[slot] if slot >= 0 else TimestampOffset(-1, self.base_offset)

    def truncated_size_bytes(self, offset: int) -> int:
        """Return how many bytes of the index stay when the log is truncated to an offset."""
        slot = self._first_slot(_RELATIVE_OFFSET, _TIMESTAMP.size, offset - self.base_offset)
        return slot * TIME_INDEX_ENTRY_BYTES

    def sanity_check(self) -> None:
        """Check what Kafka checks when it opens an index.

        Raises:
            CorruptIndexError: The size is not a multiple of the entry size, the last timestamp
                is below the first, or the last offset lies below the base offset.
        """
        if len(self._data) % TIME_INDEX_ENTRY_BYTES:
            raise CorruptIndexError(
                f"time index of {len(self._data)} bytes "
                f"is not a multiple of {TIME_INDEX_ENTRY_BYTES}"
            )
        if not self._count:
            return
        first, last = self[0], self.last_entry
        if last.timestamp_ms < first.timestamp_ms:
            raise CorruptIndexError(
                f"time index: last timestamp {last.timestamp_ms} "
                f"is below the first, {first.timestamp_ms}"
            )
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"time index: last offset {last.offset} is below base offset {self.base_offset}"
            )

    def verify_entries(self) -> None:
        """Check the whole index: the sanity check, and that entries increase.

        Timestamps increase strictly, offsets never decrease.

        Raises:
            CorruptIndexError: Something is wrong; the message names the entry.
        """
        self.sanity_check()
        previous: TimestampOffset | None = None
        for number, entry in enumerate(self.entries()):
            if previous is not None and not (
                entry.timestamp_ms > previous.timestamp_ms and entry.offset >= previous.offset
            ):
                raise CorruptIndexError(
                    f"time index: entry {number} {tuple(entry)} does not follow {tuple(previous)}"
                )
            previous = entry

    def _first_slot(self, field: struct.Struct, field_position: int, bound: int) -> int:
        """Return the first entry whose field reaches the bound; the entry count if none does."""
        data, low, high = self._data, 0, self._count
        while low < high:
            middle = (low + high) // 2
            (value,) = field.unpack_from(data, middle * TIME_INDEX_ENTRY_BYTES + field_position)
            if value < bound:
                low = middle + 1
            else:
                high = middle
        return low


def encode_entry(timestamp_ms: int, relative_offset: int) -> bytes:
    """Encode one entry.

    Args:
        timestamp_ms: Largest timestamp so far, not negative.
        relative_offset: Last offset of the batch that holds it minus the segment's base offset.

    Raises:
        ValueError: A number is negative or too large.
    """
    if not (0 <= relative_offset <= _MAX_INT and 0 <= timestamp_ms < 1 << 63):
        raise ValueError(f"time index entry ({timestamp_ms}, {relative_offset}) is out of range")
    return _ENTRY.pack(timestamp_ms, relative_offset)
