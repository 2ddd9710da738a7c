"""Chooses whole record batches of a chunk."""

import struct
from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.batch_layout import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
)

# Base offset, length, and behind them the delta of the last offset. The rest was checked when the chunk was made.
_HEADER: Final = struct.Struct(">qi11xi")
_MIN_LENGTH: Final = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES
_INTERVAL_BYTES: Final = 64 * 1024
_MAX_BORDERS: Final = 1024


class BatchRange(NamedTuple):
    """Positions in a chunk: of the first batch, and after the last."""

    start: int
    end: int


class ChunkBatches:
    """The batches of one chunk: found by walking from header to header, and remembered sparsely where the walk came by.

    So a reader that takes a chunk in small pieces walks it once and not once for each piece. At most 1024 borders are kept.
    """

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        # (first offset that lies behind the border, its position)
        self._borders: list[tuple[int, int]] = []

    def choose(self, fetch_offset: int, max_bytes: int, *, min_one_batch: bool) -> BatchRange:
        """Choose the batches from the one that holds an offset, or the next, as many as fit.

        Args:
            fetch_offset: the offset.
            max_bytes: most bytes to choose.
            min_one_batch: choose the first batch even when it is larger.

        Raises:
            CorruptRecordError: the chunk does not consist of batches.
        """
        start = self._start(fetch_offset)
        size_bytes = len(self._chunk)
        if size_bytes - start <= max_bytes:
            return BatchRange(start, size_bytes)
        end = self._last_border(start, start + max_bytes)
        if end == start and min_one_batch:
            end = next(self._walk(start))[1]
        return BatchRange(start, end)

    def _start(self, fetch_offset: int) -> int:
        """Position of the first batch that reaches an offset."""
        known = bisect_right(self._borders, (fetch_offset, len(self._chunk))) - 1
        position = self._borders[known][1] if known >= 0 else 0
        for last_offset, end in self._noted(position):
            if last_offset >= fetch_offset:
                return position
            position = end
        return position

    def _last_border(self, start: int, limit: int) -> int:
        """Last border of batches up to a limit."""
        known = bisect_right(self._borders, limit, key=lambda border: border[1]) - 1
        position = max(start, self._borders[known][1]) if known >= 0 else start
        last_offset = None
        for walked, end in self._noted(position):
            if end > limit:
                break
            position, last_offset = end, walked
        if last_offset is not None:
            self._note(last_offset + 1, position)
        return position

    def _noted(self, position: int) -> Iterator[tuple[int, int]]:
        """Walk from a border on, and remember some of those that come."""
        noted = position
        for last_offset, end in self._walk(position):
            if end - noted >= _INTERVAL_BYTES:
                self._note(last_offset + 1, end)
                noted = end
            yield last_offset, end

    def _walk(self, position: int) -> Iterator[tuple[int, int]]:
        """Last offset and end of each batch from a border on."""
        chunk, size_bytes, unpack = self._chunk, len(self._chunk), _HEADER.unpack_from
        while position < size_bytes:
            if position + BATCH_HEADER_BYTES > size_bytes:
                raise _malformed(position)
            base_offset, length, delta = unpack(chunk, position)
            end = position + LOG_OVERHEAD_BYTES + length
            if length < _MIN_LENGTH or end > size_bytes:
                raise _malformed(position)
            yield base_offset + delta, end
            position = end

    def _note(self, next_offset: int, position: int) -> None:
        border = (next_offset, position)
        at = bisect_right(self._borders, border)
        if len(self._borders) < _MAX_BORDERS and self._borders[at - 1 : at] != [border]:
            insort(self._borders, border)


def _malformed(position: int) -> CorruptRecordError:
    return CorruptRecordError(f"no record batch begins at position {position} of a chunk")
