"""The batches of one remote read, handed out in parts as fetches allow."""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.batch_layout import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES

__all__ = ["RecordRun", "RunPart"]

Piece = bytes | memoryview

# Base offset, length, and behind them the delta of the last offset. Storage has checked the rest.
_HEADER: Final = struct.Struct(">qi11xi")
_BORDER_INTERVAL_BYTES: Final = 64 * 1024


class RunPart(NamedTuple):
    """Whole batches; `end_offset` is the one behind the last."""

    pieces: Sequence[Piece]
    size_bytes: int
    end_offset: int


class _Border(NamedTuple):
    end_offset: int
    """Offset behind the batch that ends here."""
    position: int


class RecordRun:
    """Whole record batches in pieces that may cut them anywhere. Never joined: that would cost a copy of every byte."""

    def __init__(self, fetch_offset: int, pieces: Sequence[Piece]) -> None:
        """Walks the batches once.

        Args:
            fetch_offset: first offset that may be asked for.
            pieces: the bytes, in order, without empty ones.

        Raises:
            CorruptRecordError: the bytes are not whole batches.
        """
        self._pieces = pieces
        self._starts: list[int] = []
        size_bytes = 0
        for piece in pieces:
            self._starts.append(size_bytes)
            size_bytes += len(piece)
        self.size_bytes = size_bytes
        self.fetch_offset = fetch_offset
        self._borders = [_Border(fetch_offset, 0)]
        end_offset, noted = fetch_offset, 0
        for end_offset, end in self._walk(0):
            if end - noted >= _BORDER_INTERVAL_BYTES:
                self._borders.append(_Border(end_offset, end))
                noted = end
        self.end_offset = end_offset

    def part(self, fetch_offset: int, max_bytes: int, *, min_one_batch: bool) -> RunPart:
        """Batches from the one that holds an offset, or the next, as many as fit; with `min_one_batch` one at least."""
        start = self._position_of(fetch_offset)
        limit = start + max_bytes
        if limit >= self.size_bytes:
            return self._between(start, self.size_bytes, self.end_offset)
        known = bisect_right(self._borders, limit, key=lambda border: border.position) - 1
        end_offset, end = self._borders[known]
        if end < start:
            end_offset, end = fetch_offset, start
        for next_offset, next_end in self._walk(end):
            if next_end > limit and not (min_one_batch and end == start):
                break
            end_offset, end = next_offset, next_end
        return self._between(start, end, end_offset)

    def _position_of(self, fetch_offset: int) -> int:
        """Position of the first batch that ends behind an offset."""
        known = bisect_right(self._borders, fetch_offset, key=lambda border: border.end_offset) - 1
        position = self._borders[max(known, 0)].position
        for end_offset, end in self._walk(position):
            if end_offset > fetch_offset:
                break
            position = end
        return position

    def _walk(self, position: int) -> Iterator[tuple[int, int]]:
        """Offset behind each batch from a border on, and its end."""
        size_bytes, unpack = self.size_bytes, _HEADER.unpack_from
        number = bisect_right(self._starts, position) - 1
        while position < size_bytes:
            if position + BATCH_HEADER_BYTES > size_bytes:
                raise _malformed(position)
            while position - self._starts[number] >= len(self._pieces[number]):
                number += 1
            piece, at = self._pieces[number], position - self._starts[number]
            if at + _HEADER.size > len(piece):
                piece = b"".join(self._cut(position, position + _HEADER.size))
                at = 0
            base_offset, length, delta = unpack(piece, at)
            end = position + LOG_OVERHEAD_BYTES + length
            if length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES or end > size_bytes:
                raise _malformed(position)
            yield base_offset + delta + 1, end
            position = end

    def _between(self, start: int, end: int, end_offset: int) -> RunPart:
        return RunPart(list(self._cut(start, end)), end - start, end_offset)

    def _cut(self, start: int, end: int) -> Iterator[Piece]:
        number = bisect_right(self._starts, start) - 1
        while start < end:
            piece, at = self._pieces[number], start - self._starts[number]
            size_bytes = min(len(piece) - at, end - start)
            yield piece if size_bytes == len(piece) else memoryview(piece)[at : at + size_bytes]
            start += size_bytes
            number += 1


def _malformed(position: int) -> CorruptRecordError:
    return CorruptRecordError(f"no record batch begins at position {position} of a remote read")
