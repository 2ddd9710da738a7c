"""Gives chunks: from memory or from the store, verified, and reads ahead."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager

import structlog
from aquifer_core.errors import (
    CorruptSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.chunk_cache import ChunkCache, ChunkEntry, LoadedChunk
from aquifer_storage.domain.manifest_store import segment_not_found
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.read_ahead import ReadAhead
from aquifer_storage.domain.readable_segment import ReadableSegment
from aquifer_storage.domain.stored_chunks import StoredChunks
from aquifer_storage.domain.task_owner import TaskOwner

logger = structlog.get_logger(__name__)

_RETRY_MS = 1_000


class ChunkReader:
    """Reads chunks of any segment; concurrent readers of one chunk share one read.

    A read goes on when its reader has left, and fills the cache.
    """

    def __init__(self, stored: StoredChunks, options: StorageOptions) -> None:
        self._stored = stored
        self._options = options
        self.cache = ChunkCache(options.chunk_cache_bytes)
        self._read_ahead = ReadAhead(options.read_ahead_bytes)
        self._reads = TaskOwner()

    @asynccontextmanager
    async def open(
        self, segment: ReadableSegment, number: int, last_wanted: int
    ) -> AsyncIterator[LoadedChunk]:
        """Give a chunk for the time of the context.

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

    def nears_end(self, segment: ReadableSegment, number: int) -> bool:
        """Whether a reader of a chunk is at the last one, or read ahead as far as that."""
        left = segment.table.data_size_bytes - segment.end_position(number)
        return left <= self._read_ahead.pace_bytes(segment.metadata.segment_id.id, number + 1)

    def begin(self, segment: ReadableSegment, before: ReadableSegment, number: int) -> None:
        """Read a segment's first chunks ahead, for a reader that comes from a chunk of the segment before, at its pace."""
        if not len(segment.table):
            return
        pace_bytes = self._read_ahead.pace_bytes(before.metadata.segment_id.id, number + 1)
        pace_bytes = max(pace_bytes, segment.size_bytes(0))
        self._read_ahead.expect(segment.metadata.segment_id.id, 0, pace_bytes)
        self._begin_ahead(segment, self._reach(segment, -1, pace_bytes))

    async def load(self, segment: ReadableSegment, numbers: Sequence[int]) -> int:
        """Load the first of some chunks, with one request to the store at most, though nobody reads them yet.

        Returns:
            How many of the first are there now; 0 when there is room for none, in memory and on disk.

        Raises:
            CorruptSegmentError, RemoteResourceNotFoundError, RemoteStorageUnavailableError: as `open`.
        """
        entry = self.cache.find(segment.key(numbers[0]))
        entries = self._announce(segment, numbers, 0) if entry is None else [entry]
        if not entries:
            return await self._stored.hold(segment, numbers, self._options.read_size_bytes)
        if entry is None:
            self._begin(self._read(segment, entries), entries)
        await asyncio.gather(*(asyncio.shield(each.loaded) for each in entries))
        return len(entries)

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
        return self._reach(segment, number, window)

    def _reach(self, segment: ReadableSegment, number: int, window_bytes: int) -> range:
        """Return the chunks that begin in a window after a chunk."""
        last = number
        while last + 1 < len(segment.table) and window_bytes > 0:
            last += 1
            window_bytes -= segment.size_bytes(last)
        return range(number + 1, last + 1)

    def _begin_ahead(self, segment: ReadableSegment, ahead: range) -> None:
        """Read what is missing in a window, as long as it is half of it or reaches the segment's end."""
        missing = [number for number in ahead if self.cache.find(segment.key(number)) is None]
        while missing:
            if 2 * len(missing) < len(ahead) and missing[-1] + 1 < len(segment.table):
                return
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
        waiting = {entry.key.number: entry for entry in entries}
        async with aclosing(self._stored.read(segment, list(waiting))) as chunks:
            async for number, chunk in chunks:
                if isinstance(chunk, CorruptSegmentError):
                    self.cache.fail(waiting[number], chunk)
                else:
                    self.cache.complete(waiting[number], chunk)
        if any(not entry.loaded.done() for entry in entries):
            raise RemoteStorageUnavailableError(
                f"the store ended its answer for segment {segment.metadata.segment_id.id} early",
                retry_after_ms=_RETRY_MS,
            )

    def _begin(self, work: Coroutine[None, None, None], entries: Sequence[ChunkEntry]) -> None:
        self._reads.start(work, lambda: self._fail(entries, _closing()))

    def _fail(self, entries: Sequence[ChunkEntry], error: Exception) -> None:
        for entry in entries:
            if not entry.loaded.done():
                self.cache.fail(entry, error)


def _closing() -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError("the service is closing", retry_after_ms=_RETRY_MS)


def _slow(metadata: RemoteLogSegmentMetadata, timeout_s: float) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        f"the store did not give a chunk of segment {metadata.segment_id.id} within {timeout_s} s",
        retry_after_ms=_RETRY_MS,
    )
