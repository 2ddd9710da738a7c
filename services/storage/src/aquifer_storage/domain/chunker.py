"""Cuts a log into chunks at record batch borders, while it streams by."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from aquifer_core.errors import CorruptRecordError, ErrorReason, InvalidRequestError
from aquifer_core.formats.batch_layout import CODEC_MASK
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.record_batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    check_crc,
    iter_headers,
)
from aquifer_core.segment import RemoteLogSegmentMetadata

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Whole record batches, adjacent in the log.

    Attributes:
        position: where the chunk starts in the log.
        compressed_bytes: how much of it lies in batches that their producer compressed.
        pieces: its bytes, not joined; they stay as they are.
    """

    position: int
    first_offset: int
    first_timestamp_ms: int
    last_offset: int = -1
    max_timestamp_ms: int = -1
    size_bytes: int = 0
    compressed_bytes: int = 0
    pieces: list[Buffer] = field(default_factory=list)

    def append(self, piece: memoryview) -> None:
        """Add the bytes of whole batches."""
        self.pieces.append(piece)
        self.size_bytes += len(piece)


class Chunker:
    """Takes a log in pieces of any size and gives chunks.

    A chunk ends at the first batch border at or after the chunk size. Read-only pieces are kept, not copied; others are
    copied, as their owner may write to them again. Only a batch that lies in several pieces is joined.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, chunk_size_bytes: int) -> None:
        self._metadata = metadata
        self._chunk_size_bytes = chunk_size_bytes
        self._position = 0
        self._last_offset = metadata.start_offset - 1
        self._chunk: Chunk | None = None
        self._cut_batch = bytearray()

    def feed(self, piece: Buffer) -> Iterator[Chunk]:
        """Take the next bytes of the log and yield the chunks that they complete.

        Raises:
            CorruptRecordError: a batch is malformed, fails its CRC, or its offsets do not rise.
            InvalidRequestError: an offset lies outside the segment.
        """
        view = memoryview(piece)
        if not view.readonly:
            view = memoryview(bytes(view))
        start = 0
        if self._cut_batch:
            start = self._extend_cut_batch(view)
            if self._missing_bytes():
                return
            joined = memoryview(bytes(self._cut_batch))
            self._cut_batch.clear()
            yield from self._take(joined)
        yield from self._take(view[start:])

    def finish(self) -> Chunk | None:
        """Return the last chunk, if bytes are left for one.

        Raises:
            CorruptRecordError: the log ends inside a batch.
        """
        if self._cut_batch:
            raise self._corrupt(f"the log ends {len(self._cut_batch)} bytes into a record batch")
        chunk, self._chunk = self._chunk, None
        return chunk

    def _extend_cut_batch(self, view: memoryview) -> int:
        """Add what the cut batch lacks; returns how many bytes were taken."""
        start = 0
        while start < len(view) and (missing := self._missing_bytes()):
            taken = view[start : start + missing]
            self._cut_batch += taken
            start += len(taken)
            self._check_claimed_size()
        return start

    def _missing_bytes(self) -> int:
        """Bytes that the cut batch lacks, or that its header lacks while it is cut too."""
        have = len(self._cut_batch)
        if have < BATCH_HEADER_BYTES:
            return BATCH_HEADER_BYTES - have
        return max(0, self._claimed_size_bytes() - have)

    def _claimed_size_bytes(self) -> int:
        (length,) = _LENGTH.unpack_from(self._cut_batch, _LENGTH_POSITION)
        return LOG_OVERHEAD_BYTES + int(length)

    def _check_claimed_size(self) -> None:
        """Refuse a batch longer than the log before memory is spent on it."""
        if len(self._cut_batch) < BATCH_HEADER_BYTES:
            return
        claimed = self._claimed_size_bytes()
        if claimed > self._metadata.segment_size_bytes - self._position:
            raise self._corrupt(f"a record batch of {claimed} bytes does not fit into the log")

    def _take(self, view: memoryview) -> Iterator[Chunk]:
        """Add the whole batches at the start of a view, and keep the rest for the next one."""
        run_start = end = 0
        for header, start, end in self._headers(view):
            chunk = self._chunk_for(header, run_start)
            if header[5] & CODEC_MASK:
                chunk.compressed_bytes += end - start
            if chunk.size_bytes + end - run_start >= self._chunk_size_bytes:
                chunk.append(view[run_start:end])
                run_start = end
                self._chunk = None
                yield chunk
        if self._chunk is not None and end > run_start:
            self._chunk.append(view[run_start:end])
        self._position += end
        self._cut_batch += view[end:]
        self._check_claimed_size()

    def _headers(self, view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
        """Batches by their fields, checked: objects of batches would cost as much again in logs of small ones."""
        try:
            for header, start, end in iter_headers(view):
                check_crc(view[start:end], header)
                yield header, start, end
        except CorruptRecordError as error:
            raise self._corrupt(error.message) from error

    def _chunk_for(self, header: BatchHeader, run_start: int) -> Chunk:
        first, last = header[0], header[0] + header[6]
        self._check_offsets(first, last)
        chunk = self._chunk
        if chunk is None:
            chunk = self._chunk = Chunk(
                position=self._position + run_start,
                first_offset=first,
                first_timestamp_ms=header[7],
            )
        chunk.last_offset = self._last_offset = last
        chunk.max_timestamp_ms = max(chunk.max_timestamp_ms, header[8])
        return chunk

    def _check_offsets(self, first: int, last: int) -> None:
        if first < self._metadata.start_offset or last > self._metadata.end_offset:
            raise InvalidRequestError(
                f"segment {self._metadata.segment_id.id} is said to hold offsets {self._metadata.start_offset} to "
                f"{self._metadata.end_offset}, but a record batch holds {first} to {last}",
                reason=ErrorReason.INVALID_SEGMENT,
            )
        if not self._last_offset < first <= last:
            raise self._corrupt(
                f"a record batch with offsets {first} to {last} follows offset {self._last_offset}"
            )

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"segment {self._metadata.segment_id.id}, at or after position {self._position}: {what}",
            metadata={"position": str(self._position)},
        )
