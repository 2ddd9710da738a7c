"""Chunks as they are stored: from the disk cache or the store, verified."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise

import structlog
from aquifer_core.errors import CorruptSegmentError

from aquifer_storage.domain.chunk_cache import ChunkKey
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.ports import HeldChunks, ObjectStore
from aquifer_storage.domain.readable_segment import ReadableSegment

logger = structlog.get_logger(__name__)


class StoredChunks:
    """Reads chunks of any segment and keeps on disk what came from the store and was intact.

    What lies on disk is what lies in the store, sealed where that is. It is verified like an answer of the store: a damaged entry is
    dropped and read again.
    """

    def __init__(
        self, objects: ObjectStore, keys: ObjectKeys, threads: CpuThreads, held: HeldChunks | None
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._threads = threads
        self._held = held

    async def read(
        self, segment: ReadableSegment, numbers: Sequence[int]
    ) -> AsyncGenerator[tuple[int, bytes | CorruptSegmentError], None]:
        """Yield the original bytes of chunks, or what is wrong with them, as they come.

        Adjacent chunks that are not on disk are read with one request. When the store's answer ends early, so does this.

        Raises:
            RemoteStorageUnavailableError: the store does not answer.
            RemoteResourceNotFoundError: the `.log` object is not in the store.
        """
        missing: list[int] = []
        for number in numbers:
            chunk = await self._from_disk(segment, number)
            if chunk is None:
                missing.append(number)
            else:
                yield number, chunk
        for run in _runs(missing):
            async with aclosing(self._from_store(segment, run)) as chunks:
                async for found in chunks:
                    yield found

    async def hold(self, segment: ReadableSegment, numbers: Sequence[int], size_bytes: int) -> int:
        """Put the first of some chunks on disk, up to a size; returns how many, 0 when nothing is kept on disk.

        Raises:
            CorruptSegmentError: a chunk is damaged; also what `read` raises.
        """
        if self._held is None:
            return 0
        chosen: list[int] = []
        for number in numbers:
            chosen.append(number)
            size_bytes -= segment.size_bytes(number)
            if size_bytes <= 0:
                break
        async with aclosing(self.read(segment, chosen)) as chunks:
            async for _, chunk in chunks:
                if isinstance(chunk, CorruptSegmentError):
                    raise chunk
        return len(chosen)

    async def _from_disk(self, segment: ReadableSegment, number: int) -> bytes | None:
        if self._held is None:
            return None
        key = segment.key(number)
        data = await self._held.get(key)
        if data is None:
            return None
        try:
            return await self._verified(segment, number, data)
        except CorruptSegmentError as error:
            logger.warning("held_chunk_is_damaged", error=error.message, **error.metadata)
            await self._held.drop(key)
            return None

    async def _from_store(
        self, segment: ReadableSegment, numbers: Sequence[int]
    ) -> AsyncGenerator[tuple[int, bytes | CorruptSegmentError], None]:
        data_ids = [segment.table.entries[number].data_id for number in numbers]
        lengths = [data_id.stored_length_bytes for data_id in data_ids]
        key = self._keys.of(segment.metadata).log
        async with aclosing(self._objects.read(key, data_ids[0].position, lengths)) as pieces:
            waiting = iter(numbers)
            async for data in pieces:
                number = next(waiting)
                try:
                    chunk = await self._verified(segment, number, data)
                except CorruptSegmentError as error:
                    logger.error("chunk_is_damaged", error=error.message, **error.metadata)
                    yield number, error
                else:
                    self._hold(segment.key(number), data)
                    yield number, chunk

    def _hold(self, key: ChunkKey, data: bytes) -> None:
        if self._held is not None:
            self._held.put(key, data)

    async def _verified(self, segment: ReadableSegment, number: int, data: bytes) -> bytes:
        if not segment.is_transformed(number):
            return segment.verified_chunk(number, data)
        return await self._threads.run(segment.verified_chunk, number, data)


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut ascending numbers where they are not adjacent."""
    cuts = [place for place, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    for start, end in pairwise([0, *cuts, len(numbers)]):
        if end > start:
            yield numbers[start:end]
