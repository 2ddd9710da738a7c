"""Cuts a log into chunks, makes their stored forms in threads and hands them to the upload."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from aquifer_core.errors import InvalidRequestError
from aquifer_core.formats.checksum import Buffer, crc32c
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.segment import LogSource, RemoteLogSegmentMetadata

from aquifer_storage.domain.chunker import Chunk, Chunker
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.log_upload import LogUpload
from aquifer_storage.domain.part_budget import PartBudget
from aquifer_storage.domain.ports import StoredChunk
from aquifer_storage.domain.transform import SegmentTransform


@dataclass(slots=True)
class CopiedLog:
    """What is known of the `.log` object while it is written."""

    chunks: list[RemoteLogIndexEntry] = field(default_factory=list)
    sha256: str = ""
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _EncodedChunk:
    """A chunk without its original bytes."""

    chunk: Chunk
    stored: StoredChunk
    crc32c: int


class LogPipeline:
    """Copies one log.

    While a chunk is encoded, the next one is received and the one before is put into the upload's buffers, whose parts go up by
    themselves. Of what is at work beside the buffers, up to two chunks, the copy has room for one, and the other is paid from the
    budget; while that has no room, the copy goes step by step. Bytes are received only while the upload has room for some: of many copies at once, those that wait for the budget
    hold next to nothing.
    """

    def __init__(
        self,
        metadata: RemoteLogSegmentMetadata,
        transform: SegmentTransform,
        chunk_size_bytes: int,
        threads: CpuThreads,
        budget: PartBudget,
    ) -> None:
        self._metadata = metadata
        self._transform = transform
        self._chunk_size_bytes = chunk_size_bytes
        self._threads = threads
        self._budget = budget
        self._ahead_bytes = 0
        self._digest = hashlib.sha256()
        self._log = CopiedLog()

    async def run(self, source: LogSource, upload: LogUpload) -> CopiedLog:
        """Copy the log and make its object visible.

        Raises:
            CorruptRecordError: it is not a sequence of whole, sound record batches whose offsets rise.
            InvalidRequestError: its size is not the announced one.
        """
        try:
            async with aclosing(self._encoded(source, upload)) as encoded:
                async for done in encoded:
                    self._log.chunks.append(self._entry(done, upload.stored_bytes))
                    await upload.append(done.stored.pieces)
                    del done
        finally:
            self._budget.give_back(self._ahead_bytes)
        self._log.sha256 = self._digest.hexdigest()
        await upload.complete(self._log.sha256 if self._transform.is_identity else None)
        self._log.stored_bytes = upload.stored_bytes
        return self._log

    async def _encoded(
        self, source: LogSource, upload: LogUpload
    ) -> AsyncGenerator[_EncodedChunk, None]:
        """Yield encoded chunks; one is encoded ahead if the budget allows it."""
        running: asyncio.Task[_EncodedChunk] | None = None
        number = 0
        try:
            async with aclosing(self._chunks(source, upload)) as chunks:
                async for chunk in chunks:
                    done = None if running is None else await running
                    running = asyncio.create_task(self._encode(number, chunk))
                    del chunk
                    number += 1
                    if done is not None:
                        yield done
                        del done
                    if not self._may_work_ahead():
                        yield await running
                        running = None
            if running is not None:
                yield await running
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait([running])

    def _may_work_ahead(self) -> bool:
        if not self._ahead_bytes and self._budget.try_reserve(self._chunk_size_bytes):
            self._ahead_bytes = self._chunk_size_bytes
        return bool(self._ahead_bytes)

    async def _chunks(self, source: LogSource, upload: LogUpload) -> AsyncGenerator[Chunk, None]:
        chunker = Chunker(self._metadata, self._chunk_size_bytes)
        announced = self._metadata.segment_size_bytes
        received = 0
        if announced:
            await upload.make_room()
        async for piece in source.chunks():
            received += len(piece)
            if received > announced:
                break
            for chunk in chunker.feed(piece):
                yield chunk
            del piece
            if received < announced:
                await upload.make_room()
        if received != announced:
            more = "more than " if received > announced else ""
            raise InvalidRequestError(
                f"segment {self._metadata.segment_id.id} was announced with {announced} bytes, "
                f"{more}{min(received, announced)} came"
            )
        last = chunker.finish()
        if last is not None:
            yield last

    async def _encode(self, number: int, chunk: Chunk) -> _EncodedChunk:
        stored, crc = await self._threads.run(self._encode_in_thread, number, chunk)
        chunk.pieces = []  # their memory is needed
        return _EncodedChunk(chunk=chunk, stored=stored, crc32c=crc)

    def _encode_in_thread(self, number: int, chunk: Chunk) -> tuple[StoredChunk, int]:
        for piece in chunk.pieces:
            self._digest.update(piece)
        stored = self._transform.encode(number, chunk)
        return stored, _crc32c(stored.pieces)

    def _entry(self, done: _EncodedChunk, position: int) -> RemoteLogIndexEntry:
        chunk, stored = done.chunk, done.stored
        return RemoteLogIndexEntry(
            first_offset=chunk.first_offset,
            last_offset=chunk.last_offset,
            first_timestamp_ms=chunk.first_timestamp_ms,
            last_timestamp_ms=chunk.max_timestamp_ms,
            data_length_bytes=chunk.size_bytes,
            data_id=RemoteDataId(
                segment_id=self._metadata.segment_id.id,
                position=position,
                stored_length_bytes=sum(len(piece) for piece in stored.pieces),
                crc32c=done.crc32c,
                is_compressed=stored.is_compressed,
                is_encrypted=stored.is_encrypted,
            ),
        )


def _crc32c(pieces: Sequence[Buffer]) -> int:
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc
