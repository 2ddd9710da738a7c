"""Gives chunks: from memory or from the store, verified, and reads ahead."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import structlog
from aquifer_core.errors import (
    CorruptSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.chunk_cache import ChunkCache, ChunkEntry, ChunkKey
from aquifer_storage.domain.manifest_store import segment_not_found
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import ChunkTransform, ObjectStore
from aquifer_storage.domain.read_ahead import ReadAhead
from aquifer_storage.domain.task_owner import TaskOwner

logger = structlog.get_logger(__name__)

_RETRY_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableSegment:
    """A segment and its chunk table."""

    metadata: RemoteLogSegmentMetadata
    table: RemoteLogIndex

    def key(self, number: int) -> ChunkKey:
        """Return the key of a chunk."""
        return ChunkKey(self.metadata.segment_id.id, number)

    def size_bytes(self, number: int) -> int:
        """Return the original size of a chunk."""
        return self.table.entries[number].data_length_bytes

    def end_position(self, number: int) -> int:
        """Return the position after a chunk in the original log."""
        return self.table.start_position(number) + self.size_bytes(number)


class ChunkReader:
    """Reads chunks of any segment; concurrent readers of one chunk share one read.

    A read goes on when its reader has left, and fills the cache.
    """

    def __init__(
        self,
        objects: ObjectStore,
        keys: ObjectKeys,
        transform: ChunkTransform,
        options: StorageOptions,
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._transform = transform
        self._options = options
        self.cache = ChunkCache(options.chunk_cache_bytes)
        self._read_ahead = ReadAhead(options.read_ahead_bytes)
        self._reads = TaskOwner()

    @asynccontextmanager
    async def open(
        self, segment: ReadableSegment, number: int, last_wanted: int
    ) -> AsyncIterator[bytes]:
        """Give the original bytes of a chunk for the time of the context.

        Args:
            segment: the segment.
            number: the chunk.
            last_wanted: the last chunk that the reader will ask for surely.

        Raises:
            CorruptSegmentError: the stored bytes are damaged.
            RemoteResourceNotFoundError: the `.log` object is not in the store.
        """
        entry = self._demand(segment, number, last_wanted)
        try:
            yield await asyncio.shield(entry.loaded)
        finally:
            self.cache.unpin(entry)

    def begin(self, segment: ReadableSegment) -> None:
        """Read a segment's first chunks ahead, for a reader that comes from the segment before."""
        if not len(segment.table):
            return
        first_bytes = segment.size_bytes(0)
        self._read_ahead.expect(segment.metadata.segment_id.id, 0, first_bytes)
        entries = self._announce(segment, range(min(2, len(segment.table))), 0)
        if entries:
            self._begin(self._read(segment, entries), entries)

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Drop the chunks of a segment from memory."""
        self.cache.forget(metadata.segment_id.id)

    async def close(self) -> None:
        """End the reads under way."""
        await self._reads.close()

    def _demand(self, segment: ReadableSegment, number: int, last_wanted: int) -> ChunkEntry:
        """Return the pinned entry of a chunk, its read begun if need be, and read ahead."""
        ahead = self._ahead(segment, number, last_wanted)
        entry = self.cache.find(segment.key(number))
        if entry is None:
            entry = self.cache.add(segment.key(number), segment.size_bytes(number))
            self._begin(self._read_demanded(segment, entry, ahead), [entry])
        else:
            self._begin_ahead(segment, ahead)
        self.cache.pin(entry)
        return entry

    def _ahead(self, segment: ReadableSegment, number: int, last_wanted: int) -> range:
        """Return the chunks after one that are worth reading now."""
        window = self._read_ahead.window_bytes(
            segment.metadata.segment_id.id, number, segment.size_bytes(number)
        )
        sure = segment.end_position(last_wanted) - segment.end_position(number)
        window = max(window, min(sure, self._options.read_ahead_bytes))
        last = number
        while last + 1 < len(segment.table) and window > 0:
            last += 1
            window -= segment.size_bytes(last)
        return range(number + 1, last + 1)

    def _begin_ahead(self, segment: ReadableSegment, ahead: range) -> None:
        """Read what is missing in a window, once it is half of it or reaches the segment's end."""
        missing = [number for number in ahead if self.cache.find(segment.key(number)) is None]
        if not missing:
            return
        if 2 * len(missing) < len(ahead) and missing[-1] + 1 < len(segment.table):
            return
        while missing:
            entries = self._announce(segment, missing, 0)
            if not entries:
                return
            self._begin(self._read(segment, entries), entries)
            missing = missing[len(entries) :]

    def _announce(
        self, segment: ReadableSegment, numbers: Sequence[int], spent_bytes: int
    ) -> list[ChunkEntry]:
        """Announce chunks for one read: adjacent, not there yet, and as many as there is room for."""
        entries: list[ChunkEntry] = []
        for place, number in enumerate(numbers):
            key, size_bytes = segment.key(number), segment.size_bytes(number)
            fits = spent_bytes < self._options.read_size_bytes
            if number != numbers[0] + place or not fits or self.cache.find(key) is not None:
                break
            entry = self.cache.add_ahead(key, size_bytes)
            if entry is None:
                break
            entries.append(entry)
            spent_bytes += size_bytes
        return entries

    async def _read_demanded(
        self, segment: ReadableSegment, entry: ChunkEntry, ahead: range
    ) -> None:
        """Read a chunk that somebody waits for, and with the same request those that follow."""
        await self.cache.give_room(entry)
        following = self._announce(segment, ahead, entry.size_bytes)
        self._begin_ahead(segment, range(ahead.start + len(following), ahead.stop))
        await self._read(segment, [entry, *following])

    async def _read(self, segment: ReadableSegment, entries: list[ChunkEntry]) -> None:
        """Read adjacent chunks with one request; each is there as soon as its bytes are."""
        try:
            async with asyncio.timeout(self._options.read_timeout_s):
                await self._read_all(segment, entries)
        except asyncio.CancelledError:
            self._fail(entries, _closing())
            raise
        except TimeoutError:
            self._fail(entries, _slow(segment.metadata, self._options.read_timeout_s))
        except RemoteResourceNotFoundError:
            self._fail(entries, segment_not_found(segment.metadata))
        except Exception as error:  # handed on to all who wait
            self._fail(entries, error)

    async def _read_all(self, segment: ReadableSegment, entries: list[ChunkEntry]) -> None:
        table_entries = [segment.table.entries[entry.key.number] for entry in entries]
        lengths = [found.data_id.stored_length_bytes for found in table_entries]
        key = self._keys.of(segment.metadata).log
        async with aclosing(
            self._objects.read(key, table_entries[0].data_id.position, lengths)
        ) as pieces:
            waiting = iter(entries)
            async for data in pieces:
                entry = next(waiting)
                try:
                    chunk = await self._verified(segment, entry.key.number, data)
                except CorruptSegmentError as error:
                    logger.error("chunk_is_damaged", error=error.message, **error.metadata)
                    self.cache.fail(entry, error)
                else:
                    self.cache.complete(entry, chunk)
        if any(not entry.loaded.done() for entry in entries):
            raise RemoteStorageUnavailableError(
                f"the store ended its answer for {key} early", retry_after_ms=_RETRY_MS
            )

    async def _verified(self, segment: ReadableSegment, number: int, data: bytes) -> bytes:
        found = segment.table.entries[number]
        if not (found.data_id.is_compressed or found.data_id.is_encrypted):
            return verify_chunk(segment, number, data, self._transform)
        return await asyncio.to_thread(verify_chunk, segment, number, data, self._transform)

    def _begin(self, work: Coroutine[None, None, None], entries: Sequence[ChunkEntry]) -> None:
        self._reads.start(work, lambda: self._fail(entries, _closing()))

    def _fail(self, entries: Sequence[ChunkEntry], error: Exception) -> None:
        for entry in entries:
            if not entry.loaded.done():
                self.cache.fail(entry, error)


def verify_chunk(
    segment: ReadableSegment, number: int, data: bytes, transform: ChunkTransform
) -> bytes:
    """Check stored bytes against the chunk table and return the chunk's original bytes.

    Raises:
        CorruptSegmentError: they are damaged, or fewer than there should be.
        PreconditionError: this service cannot read such chunks.
    """
    entry = segment.table.entries[number]
    data_id = entry.data_id
    if len(data) != data_id.stored_length_bytes:
        raise _damaged(
            segment, number, f"{data_id.stored_length_bytes} bytes expected, {len(data)} found"
        )
    computed = crc32c(data)
    if computed != data_id.crc32c:
        raise _damaged(
            segment, number, f"crc {data_id.crc32c:#010x} expected, {computed:#010x} found"
        )
    chunk = transform.decode(data_id.segment_id, data_id, data)
    if len(chunk) != entry.data_length_bytes:
        raise _damaged(
            segment, number, f"{entry.data_length_bytes} bytes expected, {len(chunk)} opened"
        )
    return chunk


def _damaged(segment: ReadableSegment, number: int, what: str) -> CorruptSegmentError:
    segment_id = str(segment.metadata.segment_id.id)
    position = segment.table.entries[number].data_id.position
    return CorruptSegmentError(
        f"segment {segment_id}, chunk {number} at position {position} of its object: {what}",
        metadata={"segmentId": segment_id, "chunk": str(number), "position": str(position)},
    )


def _closing() -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError("the service is closing", retry_after_ms=_RETRY_MS)


def _slow(metadata: RemoteLogSegmentMetadata, timeout_s: float) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        f"the store did not give a chunk of segment {metadata.segment_id.id} within {timeout_s} s",
        retry_after_ms=_RETRY_MS,
    )
