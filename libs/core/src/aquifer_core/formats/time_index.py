"""Time index: timestamp to offset, 12 bytes an entry (K-6.3)."""

import struct
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.entry_index import MAX_RELATIVE, EntryIndex

__all__ = ["TIME_INDEX_ENTRY_BYTES", "TimeIndex", "TimestampOffset", "encode_entry"]

_ENTRY: Final = struct.Struct(">qi")
_TIMESTAMP: Final = struct.Struct(">q")
_RELATIVE_OFFSET: Final = struct.Struct(">i")

TIME_INDEX_ENTRY_BYTES: Final = _ENTRY.size


class TimestampOffset(NamedTuple):
    """Largest timestamp so far and the last offset of the batch that holds it."""

    timestamp_ms: int
    offset: int


class TimeIndex(EntryIndex[TimestampOffset]):
    """Reader over the bytes of a time index."""

    __slots__ = ()

    KIND = "time index"
    ENTRY_BYTES = TIME_INDEX_ENTRY_BYTES

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) when there is none."""
        return self[self._count - 1] if self._count else TimestampOffset(-1, self.base_offset)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the greatest entry at or below a timestamp; (-1, base offset) when none is.

        A search for the first record at or after the timestamp may start at the offset returned.
        """
        slot = self._first_slot(_TIMESTAMP, 0, timestamp_ms + 1) - 1
        return self._entry(slot) if slot >= 0 else TimestampOffset(-1, self.base_offset)

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
        self._check_size()
        if not self._count:
            return
        first, last = self[0], self.last_entry
        if last.timestamp_ms < first.timestamp_ms:
            raise CorruptIndexError(
                f"time index: last timestamp {last.timestamp_ms} "
                f"is below the first, {first.timestamp_ms}"
            )
        self._check_last_offset(last.offset)

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

    def _entry(self, index: int) -> TimestampOffset:
        timestamp_ms, relative = _ENTRY.unpack_from(self._data, index * TIME_INDEX_ENTRY_BYTES)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)


def encode_entry(timestamp_ms: int, relative_offset: int) -> bytes:
    """Encode one entry.

    Args:
        timestamp_ms: Largest timestamp so far, not negative.
        relative_offset: Last offset of the batch that holds it minus the segment's base offset.

    Raises:
        ValueError: A number is negative or too large.
    """
    if not (0 <= relative_offset <= MAX_RELATIVE and 0 <= timestamp_ms < 1 << 63):
        raise ValueError(f"time index entry ({timestamp_ms}, {relative_offset}) is out of range")
    return _ENTRY.pack(timestamp_ms, relative_offset)
