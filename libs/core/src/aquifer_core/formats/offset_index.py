"""Offset index: offset to position in the log file, 8 bytes an entry (K-6.3)."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer

__all__ = ["OFFSET_INDEX_ENTRY_BYTES", "OffsetIndex", "OffsetPosition", "encode_entry"]

_ENTRY: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")
_MAX_INT: Final = 0x7FFFFFFF

OFFSET_INDEX_ENTRY_BYTES: Final = _ENTRY.size


class OffsetPosition(NamedTuple):
    """Last offset of a batch and the position where that batch starts."""

    offset: int
    position: int


class OffsetIndex:
    """Reader over the bytes of an offset index; entries are unpacked only when needed.

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
        self._count = len(data) // OFFSET_INDEX_ENTRY_BYTES
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> OffsetPosition:
        if not 0 <= index < self._count:
            raise IndexError(index)
        relative, position = _ENTRY.unpack_from(self._data, index * OFFSET_INDEX_ENTRY_BYTES)
        return OffsetPosition(self.base_offset + relative, position)

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield all entries in file order."""
        return (self[index] for index in range(self._count))

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry; (base offset, 0) when there is none."""
        return self[self._count - 1] if self._count else OffsetPosition(self.base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset; (base offset, 0) when there is none."""
        slot = self._first_slot(0, offset - self.base_offset + 1) - 1
        return self[slot] if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def fetch_upper_bound_offset(self, start_position: int, size: int) -> int | None:
        """Return the offset of the first entry at or past the end of a fetched range.

        Args:
            start_position: Position in the log file where the fetched bytes start.
            size: Number of fetched bytes.

        Returns:
            The offset, or none when the range reaches past the last entry: the bound is then the
            end of the segment (`OffsetIndex.fetchUpperBoundOffset`).
        """
        slot = self._first_slot(4, start_position + size)
        return self[slot].offset if slot < self._count else None

    def truncated_size_bytes(self, offset: int) -> int:
        """Return how many bytes of the index stay when the log is truncated to an offset."""
        return self._first_slot(0, offset - self.base_offset) * OFFSET_INDEX_ENTRY_BYTES

    def sanity_check(self) -> None:
        """Check what Kafka checks when it opens an index.

        Raises:
            CorruptIndexError: The size is not a multiple of the entry size, or the last offset
                lies below the base offset.
        """
        if len(self._data) % OFFSET_INDEX_ENTRY_BYTES:
            raise CorruptIndexError(
                f"offset index of {len(self._data)} bytes "
                f"is not a multiple of {OFFSET_INDEX_ENTRY_BYTES}"
            )
        last = self.last_entry
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"offset index: last offset {last.offset} is below base offset {self.base_offset}"
            )

    def verify_entries(self) -> None:
        """Check the whole index: the sanity check, and that offsets and positions increase.

        Raises:
            CorruptIndexError: Something is wrong; the message names the entry.
        """
        self.sanity_check()
        previous = OffsetPosition(self.base_offset - 1, -1)
        for number, entry in enumerate(self.entries()):
            if entry.offset <= previous.offset or entry.position <= previous.position:
                raise CorruptIndexError(
                    f"offset index: entry {number} {tuple(entry)} does not follow {tuple(previous)}"
                )
            previous = entry

    def _first_slot(self, field_position: int, bound: int) -> int:
        """Return the first entry whose field reaches the bound; the entry count if none does."""
        data, low, high = self._data, 0, self._count
        while low < high:
            middle = (low + high) // 2
            (value,) = _INT.unpack_from(data, middle * OFFSET_INDEX_ENTRY_BYTES + field_position)
            if value < bound:
                low = middle + 1
            else:
                high = middle
        return low


def encode_entry(relative_offset: int, position: int) -> bytes:
    """Encode one entry.

    Args:
        relative_offset: Last offset of the batch minus the segment's base offset.
        position: Position in the log file where the batch starts.

    Raises:
        ValueError: A number does not fit into 31 bits.
    """
    if not (0 <= relative_offset <= _MAX_INT and 0 <= position <= _MAX_INT):
        raise ValueError(f"offset index entry ({relative_offset}, {position}) is out of range")
    return _ENTRY.pack(relative_offset, position)
