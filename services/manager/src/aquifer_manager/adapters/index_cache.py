"""Indexes of remote segments on disk: bounded, least recently used go first (SR-34, K-3.6).

One file per index, `<start offset>_<segment id><suffix>`: the index's bytes and their CRC-32C in 4 bytes. Files are written aside
and renamed, so a file that is there is complete; its checksum is verified whenever it is read, and a damaged one is fetched again.
"""

import asyncio
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog
from aquifer_core.errors import CorruptIndexError, ErrorReason, RemoteResourceNotFoundError
from aquifer_core.formats import transaction_index
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata

__all__ = ["DiskIndexCache"]

logger = structlog.get_logger(__name__)

_DIRECTORY_NAME: Final = "remote-log-index-cache"
_CRC_BYTES: Final = 4
_SUFFIXES: Final = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
}


class DiskIndexCache:
    """Fetches whole indexes and keeps them; implements `IndexSource`.

    However many ask for an index at the same time, it is fetched once. A fetch that failed is not remembered. A fetch goes on when
    those who asked have given up. Eviction only unlinks: who reads a file meanwhile reads on.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        directory: Path,
        *,
        max_bytes: int,
        max_entries: int | None = None,
    ) -> None:
        """Prepares.

        Args:
            storage: where indexes are fetched from.
            directory: the cache gets its own below it.
            max_bytes: of all files (`remote.log.index.file.cache.total.size.bytes`).
            max_entries: of files; None: no limit.
        """
        self._storage = storage
        self._directory = directory / _DIRECTORY_NAME
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._loads: dict[str, asyncio.Task[bytes]] = {}
        self.total_bytes = 0
        self.hits = 0
        self.misses = 0

    async def __aenter__(self) -> Self:
        for name, size_bytes in await asyncio.to_thread(self._scan):
            self._sizes[name] = size_bytes
            self.total_bytes += size_bytes
        await self._evict()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        if loads:
            await asyncio.wait(loads)

    def __len__(self) -> int:
        return len(self._sizes)

    async def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """See `IndexSource`."""
        suffix = _SUFFIXES[index_type]
        name = f"{metadata.start_offset:020d}_{metadata.segment_id.id}{suffix}"
        if name in self._sizes:
            self._sizes.move_to_end(name)
            data = await asyncio.to_thread(self._read, name)
            if data is not None:
                self.hits += 1
                return data
            self._forget(name)
        self.misses += 1
        load = self._loads.get(name)
        if load is None:
            load = asyncio.create_task(self._load(name, metadata, index_type), name=f"load {name}")
            self._loads[name] = load
            load.add_done_callback(lambda done: self._loaded(name, done))
        return await asyncio.shield(load)

    async def _load(
        self, name: str, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> bytes:
        try:
            data = await self._storage.fetch_index(metadata, index_type)
        except RemoteResourceNotFoundError as error:
            absent = error.reason is ErrorReason.INDEX_NOT_FOUND
            if not absent or index_type is not IndexType.TRANSACTION:
                raise
            data = b""
        _verify(data, index_type, metadata.start_offset)
        try:
            await asyncio.to_thread(self._write, name, data)
        except OSError as error:
            # A full disk must not stop reads; the next one fetches again.
            logger.warning("index_not_cached", name=name, error=str(error))
            return data
        self._sizes[name] = len(data) + _CRC_BYTES
        self.total_bytes += self._sizes[name]
        await self._evict()
        return data

    def _loaded(self, name: str, load: asyncio.Task[bytes]) -> None:
        self._loads.pop(name, None)
        if not load.cancelled():
            # Whoever waits sees it; when nobody waits any more it must not be reported as never retrieved.
            load.exception()

    async def _evict(self) -> None:
        names = []
        while self.total_bytes > self._max_bytes or (
            self._max_entries is not None and len(self._sizes) > self._max_entries
        ):
            name, size_bytes = self._sizes.popitem(last=False)
            self.total_bytes -= size_bytes
            names.append(name)
        if names:
            await asyncio.to_thread(self._unlink, names)

    def _forget(self, name: str) -> None:
        self.total_bytes -= self._sizes.pop(name, 0)

    def _scan(self) -> list[tuple[str, int]]:
        """Files of an earlier process, least recently used first; what it left half written goes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        found = []
        for entry in os.scandir(self._directory):
            if entry.name.endswith(tuple(_SUFFIXES.values())):
                status = entry.stat()
                found.append((status.st_mtime_ns, entry.name, status.st_size))
            elif entry.name.endswith(".tmp"):
                Path(entry.path).unlink()
        return [(name, size_bytes) for _, name, size_bytes in sorted(found)]

    def _read(self, name: str) -> bytes | None:
        """A file's index; None when it is gone or damaged, or cannot be read."""
        path = self._directory / name
        try:
            content = path.read_bytes()
            with suppress(OSError):  # of use to the next process only
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("cached_index_not_read", name=name, error=str(error))
            return None
        data, stored = content[:-_CRC_BYTES], content[-_CRC_BYTES:]
        if len(content) < _CRC_BYTES or crc32c(data).to_bytes(_CRC_BYTES, "big") != stored:
            logger.warning("cached_index_is_corrupt", name=name)
            self._unlink([name])
            return None
        return data

    def _write(self, name: str, data: bytes) -> None:
        path = self._directory / name
        partial = path.with_name(f"{name}.tmp")
        try:
            partial.write_bytes(data + crc32c(data).to_bytes(_CRC_BYTES, "big"))
            partial.replace(path)
        except OSError:
            # What a full disk took of it would fill it for good.
            self._unlink([partial.name])
            raise

    def _unlink(self, names: list[str]) -> None:
        """Deletes files; one that cannot be deleted takes up room until the next start, and no more."""
        for name in names:
            try:
                (self._directory / name).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cached_index_not_deleted", name=name, error=str(error))


def _verify(data: bytes, index_type: IndexType, start_offset: int) -> None:
    """Refuses an index that Kafka would refuse to open.

    Raises:
        CorruptIndexError: it is damaged in the store.
    """
    match index_type:
        case IndexType.OFFSET:
            OffsetIndex(data, start_offset).verify_entries()
        case IndexType.TIMESTAMP:
            TimeIndex(data, start_offset).verify_entries()
        case IndexType.TRANSACTION:
            transaction_index.sanity_check(data, start_offset)
        case _:
            raise CorruptIndexError(f"{index_type.name} is not an index that is cached")
