"""The remote log index: the chunk table of a copied segment, and its companions (SR-32)."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Self

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats import offset_index, time_index
from aquifer_core.formats.checksum import Buffer, crc32c
from aquifer_core.formats.remote_data_id import REMOTE_DATA_ID_BYTES, RemoteDataId

__all__ = [
    "REMOTE_LOG_INDEX_ENTRY_BYTES",
    "RemoteLogIndex",
    "RemoteLogIndexEntry",
    "decode_entries",
    "encode_remote_offset_index",
    "encode_remote_time_index",
]

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">hhI")
_BODY: Final = struct.Struct(">qqqqih")
_CRC_BYTES: Final = 4

REMOTE_LOG_INDEX_ENTRY_BYTES: Final = _HEAD.size + _BODY.size + REMOTE_DATA_ID_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogIndexEntry:
    """One chunk of a log segment.

    Attributes:
        first_offset: Base offset of the chunk's first batch.
        last_offset: Last offset of its last batch, inclusive.
        first_timestamp_ms: Base timestamp of the first batch.
        last_timestamp_ms: Largest timestamp of the chunk; -1 when unknown.
        data_length_bytes: Size of the chunk in the original log.
        data_id: Where the stored bytes lie.
    """

    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    data_length_bytes: int
    data_id: RemoteDataId

    def encode(self) -> bytes:
        """Encode with magic, length and CRC-32C in front."""
        data_id = self.data_id.encode()
        body = (
            _BODY.pack(
                self.first_offset,
                self.last_offset,
                self.first_timestamp_ms,
                self.last_timestamp_ms,
                self.data_length_bytes,
                len(data_id),
            )
            + data_id
        )
        return _HEAD.pack(_MAGIC, _CRC_BYTES + len(body), crc32c(body)) + body


class RemoteLogIndex:
    """The chunk table of one segment; every search is a bisection.

    Chunks follow each other in the original log without gaps; their offsets may have gaps.
    """

    __slots__ = ("_ends", "_last_offsets", "_max_timestamps_ms", "entries")

    def __init__(self, entries: Iterable[RemoteLogIndexEntry]) -> None:
        """Build the table from chunks in order.

        Raises:
            CorruptIndexError: A chunk is empty or does not follow the one before it.
        """
        self.entries: tuple[RemoteLogIndexEntry, ...] = tuple(entries)
        _check_order(self.entries)
        self._last_offsets = [entry.last_offset for entry in self.entries]
        self._ends = list(accumulate(entry.data_length_bytes for entry in self.entries))
        self._max_timestamps_ms = list(
            accumulate((entry.last_timestamp_ms for entry in self.entries), max)
        )

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def parse(cls, data: Buffer) -> Self:
        """Parse the bytes of one segment's index and verify every entry.

        Raises:
            CorruptIndexError: An entry is malformed, fails its CRC or is out of order.
        """
        return cls(entry for _, entry in decode_entries(data))

    def encode(self) -> bytes:
        """Encode all entries, in order."""
        return b"".join(entry.encode() for entry in self.entries)

    @property
    def data_size_bytes(self) -> int:
        """Size of the original log."""
        return self._ends[-1] if self._ends else 0

    def start_position(self, number: int) -> int:
        """Return the position in the original log where a chunk starts."""
        return self._ends[number] - self.entries[number].data_length_bytes

    def find_by_offset(self, offset: int) -> int | None:
        """Return the number of the first chunk that reaches an offset; none past the end.

        An offset in a gap or below the start gives the chunk that follows.
        """
        number = bisect_left(self._last_offsets, offset)
        return number if number < len(self.entries) else None

    def find_by_position(self, position: int) -> int | None:
        """Return the number of the chunk that holds a position of the original log, if any."""
        if not 0 <= position < self.data_size_bytes:
            return None
        return bisect_right(self._ends, position)

    def find_by_timestamp(self, timestamp_ms: int) -> int | None:
        """Return the number of the first chunk with a timestamp at or above the one given."""
        number = bisect_left(self._max_timestamps_ms, timestamp_ms)
        return number if number < len(self.entries) else None

    def chunks_between(self, start_position: int, end_position: int) -> range:
        """Return the numbers of the chunks that hold a range of the original log.

        Args:
            start_position: First position.
            end_position: Last position, inclusive; clipped to the end of the log.
        """
        last_position = min(end_position, self.data_size_bytes - 1)
        if not 0 <= start_position <= last_position:
            return range(0)
        return range(
            bisect_right(self._ends, start_position), bisect_right(self._ends, last_position) + 1
        )

    def remote_offset_index(self, start_offset: int) -> bytes:
        """Build the companion offset index of this table alone."""
        return encode_remote_offset_index(self._positioned(), start_offset)

    def remote_time_index(self, start_offset: int) -> bytes:
        """Build the companion time index of this table alone."""
        return encode_remote_time_index(self.entries, start_offset)

    def _positioned(self) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
        for number, entry in enumerate(self.entries):
            yield number * REMOTE_LOG_INDEX_ENTRY_BYTES, entry


def decode_entries(data: Buffer, position: int = 0) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
    """Yield each entry from a position on, with the position where it starts.

    The entries may be of several segments, as in a leader's rolling file.

    Raises:
        CorruptIndexError: An entry is malformed, cut short or fails its CRC.
    """
    view = memoryview(data)
    while position < len(view):
        if len(view) - position < _HEAD.size:
            raise _corrupt(position, "is cut short")
        magic, length, stored_crc = _HEAD.unpack_from(view, position)
        if magic != _MAGIC:
            raise _corrupt(position, f"has magic {magic}")
        body_start = position + _HEAD.size
        end = body_start - _CRC_BYTES + length
        if length < _CRC_BYTES + _BODY.size or end > len(view):
            raise _corrupt(position, f"has length {length}")
        body = view[body_start:end]
        if (computed_crc := crc32c(body)) != stored_crc:
            raise _corrupt(
                position, f"has stored crc {stored_crc:#010x}, computed {computed_crc:#010x}"
            )
        yield position, _decode_body(body, position)
        position = end


def encode_remote_offset_index(
    positioned_entries: Iterable[tuple[int, RemoteLogIndexEntry]],
    start_offset: int,
    *,
    after_offset: int | None = None,
) -> bytes:
    """Build an offset index that points into a remote log index, or what continues one.

    Entries hold a chunk's first offset, so that the floor of an offset (`OffsetIndex.lookup`) is
    the entry of the chunk which holds it. Chunks that start below what is indexed are left out.

    Args:
        positioned_entries: Chunks with the position of their entry in the remote log index.
        start_offset: The offset in the file's name.
        after_offset: The offset of the last entry of the index that is continued.
    """
    out = bytearray()
    previous = -1 if after_offset is None else after_offset - start_offset
    for position, entry in positioned_entries:
        relative_offset = entry.first_offset - start_offset
        if relative_offset > previous:
            out += offset_index.encode_entry(relative_offset, position)
            previous = relative_offset
    return bytes(out)


def encode_remote_time_index(
    entries: Sequence[RemoteLogIndexEntry], start_offset: int, *, largest_ms: int = -1
) -> bytes:
    """Build a time index: the largest timestamp so far, the last offset of the chunk that holds it.

    Args:
        entries: Chunks in order.
        start_offset: The offset in the file's name.
        largest_ms: The last timestamp of the index that is continued.
    """
    out = bytearray()
    for entry in entries:
        if entry.last_timestamp_ms > largest_ms:
            largest_ms = entry.last_timestamp_ms
            out += time_index.encode_entry(largest_ms, entry.last_offset - start_offset)
    return bytes(out)


def _decode_body(body: memoryview, position: int) -> RemoteLogIndexEntry:
    *numbers, data_length_bytes, data_id_length = _BODY.unpack_from(body)
    if data_id_length != len(body) - _BODY.size:
        raise _corrupt(position, f"has a remote data id of {data_id_length} bytes")
    first_offset, last_offset, first_timestamp_ms, last_timestamp_ms = numbers
    return RemoteLogIndexEntry(
        first_offset=first_offset,
        last_offset=last_offset,
        first_timestamp_ms=first_timestamp_ms,
        last_timestamp_ms=last_timestamp_ms,
        data_length_bytes=data_length_bytes,
        data_id=RemoteDataId.decode(body[_BODY.size :]),
    )


def _check_order(entries: Sequence[RemoteLogIndexEntry]) -> None:
    previous_last = -1
    for number, entry in enumerate(entries):
        if entry.data_length_bytes <= 0:
            raise CorruptIndexError(f"remote log index: chunk {number} is empty")
        if not previous_last < entry.first_offset <= entry.last_offset:
            raise CorruptIndexError(
                f"remote log index: chunk {number} holds {entry.first_offset} to "
                f"{entry.last_offset}, after offset {previous_last}"
            )
        previous_last = entry.last_offset


def _corrupt(position: int, what: str) -> CorruptIndexError:
    return CorruptIndexError(f"remote log index: entry at position {position} {what}")
