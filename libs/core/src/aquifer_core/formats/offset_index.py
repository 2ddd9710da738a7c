"""Offset index: offset to position in the log file, 8 bytes an entry (K-6.3)."""

import struct
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.entry_index import MAX_RELATIVE, EntryIndex

__all__ = ["OFFSET_INDEX_ENTRY_BYTES", "OffsetIndex", "OffsetPosition", "encode_entry"]

_ENTRY: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")
_POSITION_PLACE: Final = 4

OFFSET_INDEX_ENTRY_BYTES: Final = _ENTRY.size


class OffsetPosition(NamedTuple):
    """Last offset of a batch and the position where that batch starts."""

    offset: int
    position: int


class OffsetIndex(EntryIndex[OffsetPosition]):
    """Reader over the bytes of an offset index."""

    __slots__ = ()

    KIND = "offset index"
    ENTRY_BYTES = OFFSET_INDEX_ENTRY_BYTES

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry; (base offset, 0) when there is none."""
        return self[self._count - 1] if self._count else OffsetPosition(self.base_offset, 0)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset; (base offset, 0) when there is none."""
        slot = self._first_slot(_INT, 0, offset - self.base_offset + 1) - 1
        return self._entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def fetch_upper_bound_offset(self, start_position: int, size: int) -> int | None:
        """Return the offset of the first entry at or past the end of a fetched range.

        Args:
            start_position: Position in the log file where the fetched bytes start.
            size: Number of fetched bytes.

        Returns:
            The offset, or none when the range reaches past the last entry: the bound is then the
            end of the segment (`OffsetIndex.fetchUpperBoundOffset`).
        """
        slot = self._first_slot(_INT, _POSITION_PLACE, start_position + size)
        return self._entry(slot).offset if slot < self._count else None

    def truncated_size_bytes(self, offset: int) -> int:
        """Return how many bytes of the index stay when the log is truncated to an offset."""
        return self._first_slot(_INT, 0, offset - self.base_offset) * OFFSET_INDEX_ENTRY_BYTES

    def sanity_check(self) -> None:
        """Check what Kafka checks when it opens an index.

        Raises:
            CorruptIndexError: The size is not a multiple of the entry size, or the last offset
                lies below the base offset.
        """
        self._check_size()
        self._check_last_offset(self.last_entry.offset)

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

    def _entry(self, index: int) -> OffsetPosition:
        relative, position = _ENTRY.unpack_from(self._data, index * OFFSET_INDEX_ENTRY_BYTES)
        return OffsetPosition(self.base_offset + relative, position)


def encode_entry(relative_offset: int, position: int) -> bytes:
    """Encode one entry.

    Args:
        relative_offset: Last offset of the batch minus the segment's base offset.
        position: Position in the log file where the batch starts.

    Raises:
        ValueError: A number does not fit into 31 bits.
    """
    if not (0 <= relative_offset <= MAX_RELATIVE and 0 <= position <= MAX_RELATIVE):
        raise ValueError(f"offset index entry ({relative_offset}, {position}) is out of range")
    return _ENTRY.pack(relative_offset, position)
