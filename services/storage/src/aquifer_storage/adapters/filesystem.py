"""Objects as files under a directory."""

import hashlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    InternalError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.checksum import Buffer

from aquifer_storage.adapters.request_record import RequestTotals
from aquifer_storage.adapters.worker_threads import WorkerThreads
from aquifer_storage.domain.ports import ObjectInfo, ObjectUpload, Written

_T = TypeVar("_T")

_TEMPORARY: Final = ".uploads"
_RETRY_AFTER_MS: Final = 1_000
_ATTEMPTS: Final = 1_000
"""To write into a directory that deletions take away each time."""


class FilesystemObjectStore:
    """Objects are files under a root directory; implements `domain.ports.ObjectStore`.

    An object appears by an atomic rename of a synced file, so that readers and a crash see all of it or nothing.
    """

    backend: Final = "filesystem"

    def __init__(self, root: Path, *, threads: int = 8) -> None:
        self._root = root
        self._temporary = root / _TEMPORARY
        self._threads = WorkerThreads(threads, "filesystem")
        self._replacing = threading.Lock()
        self.totals = RequestTotals(self.backend)

    async def put(self, key: str, data: Buffer) -> Written:
        """Write an object, replacing what was there."""
        await self.request("put_object", key, lambda: self._write(key, data), len(data))
        return Written.YES

    async def create(self, key: str, data: Buffer, *, sha256: str | None = None) -> Written:
        """Write an object unless there is one. Nothing is confirmed: a file's size is soon looked at."""
        is_written = await self.request(
            "put_object", key, lambda: self._write(key, data, replace=False), len(data)
        )
        return Written.YES if is_written else Written.NOT

    async def replace(self, key: str, data: Buffer, *, found: bytes) -> Written:
        """Write an object in place of the one that was found, which is looked at just before: only other processes can come between."""
        is_written = await self.request(
            "put_object", key, lambda: self._replace(key, data, found), len(data)
        )
        return Written.YES if is_written else Written.NOT

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        """Begin an object of many parts."""
        target = self._path(key)
        path = self._temporary_file(key)
        await self.request("create_upload", key, lambda: _make_file(path))
        return _FileUpload(self, key, path, target, part_size_bytes)

    async def abort_uploads(self, key: str) -> int:
        """Forget every unfinished upload of a key."""
        found = await self.request("list_uploads", key, lambda: self._uploads(key))
        for path in found:
            await self.request("abort_upload", key, lambda: path.unlink(missing_ok=True))  # noqa: B023
        return len(found)

    async def abort_stale_uploads(
        self, prefix: str, older_than_s: float, is_ours: Callable[[str], bool]
    ) -> int:
        """Forget unfinished files that nobody has written to for so long, by the file system's clock; returns how many.

        All of them are ours, whatever their keys.
        """
        touched_before_s = await self.store_time_ms() / 1000 - older_than_s
        found = await self.request(
            "list_uploads", prefix, lambda: self._stale_uploads(touched_before_s)
        )
        for path in found:
            await self.request("abort_upload", path.name, lambda: path.unlink(missing_ok=True))  # noqa: B023
        return len(found)

    async def get(self, key: str, position: int = 0, length_bytes: int | None = None) -> bytes:
        """Read a range of an object."""
        path = self._path(key)
        return await self.request("get_object", key, lambda: _read(path, position, length_bytes))

    async def read(
        self, key: str, position: int, lengths_bytes: Sequence[int]
    ) -> AsyncGenerator[bytes, None]:
        """Read adjacent ranges, each when it is asked for."""
        for length_bytes in lengths_bytes:
            yield await self.get(key, position, length_bytes)
            position += length_bytes

    async def size_bytes(self, key: str) -> int | None:
        """Size of an object; none when there is none."""
        path = self._path(key)
        try:
            return await self.request("head_object", key, lambda: path.stat().st_size)
        except RemoteResourceNotFoundError:
            return None

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order, and directories that are empty then."""
        for key in keys:
            path = self._path(key)
            await self.request("delete_object", key, lambda: self._unlink(path))  # noqa: B023

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects whose keys begin with a prefix, in the order of their keys."""
        for found in await self.request("list_objects", prefix, lambda: self._find(prefix)):
            yield found

    async def check(self) -> None:
        """Return when the root directory can be written to; makes it when it is missing."""
        await self.request("head_bucket", "", self._probe)

    async def store_time_ms(self) -> int:
        """Time by the file system, which may be another machine's."""
        return await self.request("head_bucket", "", self._probe)

    async def refuses_damage(self, key: str) -> bool:
        """True: nothing is between the process and its file but the kernel."""
        return True

    async def close(self) -> None:
        """Release the threads."""
        self._threads.close()

    async def request(
        self, operation: str, key: str, call: Callable[[], _T], sent_bytes: int = 0
    ) -> _T:
        """Do something in a thread."""
        with self.totals.record(operation, key) as record:
            try:
                answer = await self._threads.run(call)
            except (OSError, ValueError) as error:
                raise _translated(error, operation, key) from error
            record.sent(sent_bytes)
            record.received(len(answer) if isinstance(answer, bytes) else 0)
            return answer

    def publish(self, temporary: Path, path: Path, *, replace: bool) -> bool:
        """Sync a file and make it visible under its name; false when there is one that may not be replaced. Blocks."""
        _sync(temporary)
        for _ in range(_ATTEMPTS):
            with suppress(FileExistsError, FileNotFoundError):  # deletions take directories away
                path.parent.mkdir(parents=True, exist_ok=True)
            try:
                if replace:
                    temporary.replace(path)
                else:
                    path.hardlink_to(temporary)
            except FileExistsError:
                _sync_names(path, self._root)
                return False
            except FileNotFoundError:
                if not temporary.exists():
                    raise
                continue  # a deletion next to it took the directory away
            _sync_names(path, self._root)
            return True
        raise RemoteStorageUnavailableError(
            f"directory {path.parent} cannot be made", retry_after_ms=_RETRY_AFTER_MS
        )

    def _path(self, key: str) -> Path:
        path = self._root / key
        if ".." in path.parts or not path.is_relative_to(self._root):
            raise InternalError(f"object key {key!r} leads out of the store")
        return path

    def _temporary_file(self, key: str) -> Path:
        return self._temporary / f"{_digest(key)}-{uuid4().hex}"

    def _uploads(self, key: str) -> list[Path]:
        return list(self._temporary.glob(f"{_digest(key)}-*"))

    def _stale_uploads(self, touched_before_s: float) -> list[Path]:
        stale = []
        for path in self._temporary.glob("*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < touched_before_s:
                    stale.append(path)
        return stale

    def _write(self, key: str, data: Buffer, *, replace: bool = True) -> bool:
        path = self._path(key)
        temporary = self._temporary_file(key)
        _make_file(temporary)
        try:
            temporary.write_bytes(data)
            return self.publish(temporary, path, replace=replace)
        finally:
            temporary.unlink(missing_ok=True)

    def _replace(self, key: str, data: Buffer, found: bytes) -> bool:
        path = self._path(key)
        with self._replacing:
            return path.is_file() and path.read_bytes() == found and self._write(key, data)

    def _unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root or not _is_removed(folder):
                _sync_directory(folder)
                return

    def _find(self, prefix: str) -> list[ObjectInfo]:
        folder = (self._root / prefix).parent if "/" in prefix else self._root
        found = []
        for directory, names, files in os.walk(folder):
            if Path(directory) == self._root:
                names[:] = [name for name in names if name != _TEMPORARY]
            for name in files:
                path = Path(directory) / name
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    with suppress(FileNotFoundError):
                        found.append(_listed(key, path.stat()))
        return sorted(found, key=lambda listed: listed.key)

    def _probe(self) -> int:
        self._temporary.mkdir(parents=True, exist_ok=True)
        probe = self._temporary / f"probe-{uuid4().hex}"
        probe.write_bytes(b"")
        written_ms = probe.stat().st_mtime_ns // 1_000_000
        probe.unlink()
        return written_ms


class _FileUpload:
    """A file that is written in parts; implements `domain.ports.ObjectUpload`."""

    def __init__(
        self,
        store: FilesystemObjectStore,
        key: str,
        path: Path,
        target: Path,
        part_size_bytes: int,
    ) -> None:
        self._store = store
        self._key = key
        self._path = path
        self._target = target
        self._part_size_bytes = part_size_bytes

    async def put_part(self, number: int, data: Buffer) -> None:
        """Write a part where it belongs."""
        position = (number - 1) * self._part_size_bytes
        with self._not_gone():
            await self._store.request(
                "upload_part", self._key, lambda: _write_at(self._path, position, data), len(data)
            )

    async def complete(self) -> bool:
        """Make the file visible unless there is one."""
        with self._not_gone():
            done = await self._store.request(
                "complete_upload",
                self._key,
                lambda: self._store.publish(self._path, self._target, replace=False),
            )
        await self.abort()
        return done

    async def abort(self) -> None:
        """Forget the file."""
        await self._store.request("abort_upload", self._key, self._forget)

    def _forget(self) -> None:
        self._path.unlink(missing_ok=True)

    @contextmanager
    def _not_gone(self) -> Iterator[None]:
        """What is missing is the unfinished file, not the object."""
        try:
            yield
        except RemoteResourceNotFoundError as error:
            raise ConcurrentUpdateError(
                f"the upload of {self._key} was aborted: {error.message}"
            ) from error


def _sync_names(path: Path, root: Path) -> None:
    """Make the name of a file last, and those of its directories, which whoever made them may not have synced yet."""
    for folder in path.parents:
        _sync_directory(folder)
        if folder == root:
            return


def _sync_directory(folder: Path) -> None:
    with suppress(FileNotFoundError):  # deleted meanwhile
        _sync(folder)


def _is_removed(folder: Path) -> bool:
    """Remove a directory that is empty."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _write_at(path: Path, position: int, data: Buffer) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _read(path: Path, position: int, length_bytes: int | None) -> bytes:
    with path.open("rb") as file:
        left_bytes = max(0, os.fstat(file.fileno()).st_size - position)
        if not left_bytes:
            return b""
        file.seek(position)
        # Memory is taken for what is asked, not for what is there.
        return file.read(left_bytes if length_bytes is None else min(length_bytes, left_bytes))


def _digest(key: str) -> str:
    """Name of a key that is short enough for a file."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _listed(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(
        key=key, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000
    )


def _translated(error: OSError | ValueError, operation: str, key: str) -> AquiferError:
    text = f"{operation} of {key}: {error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RemoteResourceNotFoundError(text)
    if isinstance(error, OSError):
        return RemoteStorageUnavailableError(text, retry_after_ms=_RETRY_AFTER_MS)
    return InternalError(text)
