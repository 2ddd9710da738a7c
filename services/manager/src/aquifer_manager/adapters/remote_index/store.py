"""Where the local remote indexes of all partitions lie."""

import fcntl
import itertools
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Final, Self

import structlog
from aquifer_core.errors import CorruptIndexError
from aquifer_core.ids import TopicIdPartition

from aquifer_manager.adapters.remote_index.directory import IndexDirectory

__all__ = ["IndexStore"]

logger = structlog.get_logger(__name__)

_DIRECTORY_NAME: Final = "remote-log-index"


class IndexStore:
    """Implements `RemoteIndexStore`: a directory `<topic id>-<partition>` for each partition. Every method blocks.

    As a context manager it has a place of its own: managers that share a directory each take the first one that is free.
    """

    def __init__(self, directory: Path, *, rotate_bytes: int, rotate_ms: int) -> None:
        """Prepare.

        Args:
            directory: gets a directory for all of them.
            rotate_bytes: see `IndexDirectory`.
            rotate_ms: see `IndexDirectory`.
        """
        self._directory = directory / _DIRECTORY_NAME
        self._lock: BinaryIO | None = None
        self._rotate_bytes = rotate_bytes
        self._rotate_ms = rotate_ms

    def __enter__(self) -> Self:
        shared = self._directory.parent
        shared.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            name = f"{_DIRECTORY_NAME}-{number}" if number else _DIRECTORY_NAME
            lock = (shared / f"{name}.lock").open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self._lock, self._directory = lock, shared / name
            break
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def open(self, tip: TopicIdPartition) -> IndexDirectory:
        """The index of a partition; an empty one when there is none, or a damaged one, which is deleted.

        Raises:
            OSError: the disk cannot be read or written.
        """
        path = self._directory / _name(tip)
        try:
            return IndexDirectory.open(
                path, rotate_bytes=self._rotate_bytes, rotate_ms=self._rotate_ms
            )
        except CorruptIndexError as error:
            logger.warning("remote_index_is_damaged", partition=str(tip), error=str(error))
            self.delete(tip)
            return IndexDirectory(path, rotate_bytes=self._rotate_bytes, rotate_ms=self._rotate_ms)

    def delete(self, tip: TopicIdPartition) -> None:
        """Delete the index of a partition, if there is one.

        Raises:
            OSError: the disk cannot be written.
        """
        path = self._directory / _name(tip)
        if path.exists():
            shutil.rmtree(path)

    def delete_unused(self, used: Collection[TopicIdPartition], unused_for_s: float) -> int:
        """Delete indexes of partitions that are not used and were not written to for a time; answer how many.

        Raises:
            OSError: the disk cannot be read or written.
        """
        if not self._directory.is_dir():
            return 0
        names = {_name(tip) for tip in used}
        before_s = time.time() - unused_for_s
        old = [
            path
            for path in self._directory.iterdir()
            if path.name not in names and _written_s(path) < before_s
        ]
        for path in old:
            shutil.rmtree(path)
        return len(old)


def _name(tip: TopicIdPartition) -> str:
    return f"{tip.topic_id}-{tip.partition}"


def _written_s(path: Path) -> float:
    return max(entry.stat().st_mtime for entry in (path, *path.iterdir()))
