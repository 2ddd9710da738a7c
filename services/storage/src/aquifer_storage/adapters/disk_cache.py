"""Chunks in files, within one budget of bytes that all worker processes share."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from sqlite3 import DatabaseError as IndexDamage
from sqlite3 import Error as IndexFailure
from typing import Final, TypeVar

import structlog
from aquifer_core.ids import KafkaUuid

from aquifer_storage.adapters.disk_cache_index import DiskCacheIndex, is_damage
from aquifer_storage.domain.chunk_cache import ChunkKey

logger = structlog.get_logger(__name__)

_T = TypeVar("_T")

_READ_THREADS: Final = 4
_MAX_WAITING_PUTS: Final = 16
_MAX_TOUCHED: Final = 1000
_OLD_PART_S: Final = 3600.0
_PATIENCE_S: Final = 10.0
_REST_S: Final = 30.0


class DiskCache:
    """Implements `domain.ports.HeldChunks` over a folder.

    Each chunk is a file, written beside its place and moved there whole. An index in SQLite has their sizes and last uses, so that
    nothing is walked or counted, neither on a start nor to make room. Reads open files and never wait for the index: whoever
    opened a file keeps it though it is evicted meanwhile. A failing disk costs the cache and nothing else: one that does not answer
    is waited for once, and then left alone for a while.

    An entry is in the index before its file is there, and until after it is gone: a crash in between leaves no file unknown.
    """

    def __init__(self, root: Path, capacity_bytes: int, *, patience_s: float = _PATIENCE_S) -> None:
        """Open the folder, made if need be; what it holds beyond the capacity is evicted with the next entry."""
        self._chunks = root / "chunks"
        self._chunks.mkdir(parents=True, exist_ok=True)
        self._capacity_bytes = capacity_bytes
        self._index = DiskCacheIndex(root / "index.sqlite3", self._forget_all)
        self._readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="disk-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="disk-write")
        self._lock = threading.Lock()
        self._touched: dict[str, int] = {}
        self._waiting_puts = 0
        self._patience_s = patience_s
        self._rests_until_s = 0.0
        self._writer.submit(self._guarded, self._open)

    async def get(self, key: ChunkKey) -> bytes | None:
        """The bytes of an entry; none when there is none or it cannot be read."""
        if time.monotonic() < self._rests_until_s:
            return None
        name = _name(key)
        data = await self._run(self._readers, lambda: self._read(name))
        if data is not None:
            self._touch(name)
        return data

    def put(self, key: ChunkKey, data: bytes) -> None:
        """Write an entry soon, or not at all when the disk does not keep up."""
        with self._lock:
            if self._waiting_puts >= _MAX_WAITING_PUTS:
                return
            self._waiting_puts += 1
        self._writer.submit(self._guarded, lambda: self._write(_name(key), data))

    async def drop(self, key: ChunkKey) -> None:
        """Remove an entry."""
        await self._run(self._writer, lambda: self._guarded(lambda: self._remove_one(_name(key))))

    async def forget(self, segment_id: KafkaUuid) -> None:
        """Remove the entries of a segment."""
        prefix = segment_id.raw.hex()
        await self._run(self._writer, lambda: self._guarded(lambda: self._remove_all(prefix)))

    async def close(self) -> None:
        """Write what waits, and close. Idempotent."""
        with suppress(RuntimeError):  # closed already
            await self._run(self._writer, lambda: self._guarded(self._close))
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    async def _run(self, pool: ThreadPoolExecutor, call: Callable[[], _T]) -> _T | None:
        """Return what a call in a thread returns; none when the disk does not answer. The call goes on if it has begun."""
        running = asyncio.get_running_loop().run_in_executor(pool, call)
        done, _ = await asyncio.wait([running], timeout=self._patience_s)
        if done:
            return running.result()
        if pool is self._readers:
            running.cancel()
            self._rests_until_s = time.monotonic() + _REST_S
        logger.warning("disk_cache_does_not_answer", folder=str(self._chunks))
        return None

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            try:
                action()
            except IndexDamage as error:
                if not is_damage(error):
                    raise
                self._index.renew(error)
        except (OSError, IndexFailure) as error:
            logger.warning("disk_cache_failed", folder=str(self._chunks), error=repr(error))

    def _open(self) -> None:
        self._index.open()
        old_s = time.time() - _OLD_PART_S
        for part in self._chunks.glob("*.part"):
            with suppress(FileNotFoundError):  # its process has just finished it
                if part.stat().st_mtime < old_s:
                    part.unlink()

    def _close(self) -> None:
        self._flush_touched()
        self._index.close()

    def _path(self, name: str) -> Path:
        return self._chunks / name[:2] / name

    def _read(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("disk_cache_failed", entry=name, error=repr(error))
            return None

    def _write(self, name: str, data: bytes) -> None:
        with self._lock:
            self._waiting_puts -= 1
        self._flush_touched()
        if len(data) > self._capacity_bytes:
            return
        with self._index.alone():
            self._make_room(len(data))
            self._index.add(name, len(data), time.time_ns())
        part = self._chunks / f"{name}.{os.getpid()}.part"
        place = self._path(name)
        try:
            place.parent.mkdir(exist_ok=True)
            part.write_bytes(data)
            with self._index.alone():
                if self._index.holds(name):  # else another process has evicted it already
                    part.replace(place)
        except OSError:
            with self._index.alone():
                if not place.exists():  # else what is not there would take room
                    self._index.remove(name)
            raise
        finally:
            part.unlink(missing_ok=True)

    def _make_room(self, size_bytes: int) -> None:
        while self._index.used_bytes() + size_bytes > self._capacity_bytes:
            oldest = self._index.oldest()
            if oldest is None:
                return
            self._remove(oldest)

    def _remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)
        self._index.remove(name)

    def _remove_one(self, name: str) -> None:
        with self._index.alone():
            self._remove(name)

    def _remove_all(self, prefix: str) -> None:
        with self._index.alone():
            for name in self._index.names_of(prefix):
                self._remove(name)

    def _forget_all(self) -> None:
        """The index is new: files that it does not know would never leave."""
        for path in self._chunks.glob("??/*"):
            path.unlink(missing_ok=True)

    def _touch(self, name: str) -> None:
        with self._lock:
            self._touched[name] = time.time_ns()
            is_many = len(self._touched) == _MAX_TOUCHED
        if is_many:
            self._writer.submit(self._guarded, self._flush_touched)

    def _flush_touched(self) -> None:
        with self._lock:
            touched, self._touched = self._touched, {}
        if touched:
            self._index.touch(touched)


def _name(key: ChunkKey) -> str:
    return f"{key.segment_id.raw.hex()}-{key.number}"
