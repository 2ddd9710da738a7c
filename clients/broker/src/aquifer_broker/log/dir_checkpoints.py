"""The checkpoint files of one log dir: recovery points, log start offsets, high watermarks (K-6.1)."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.offset_checkpoint import format_offsets, parse_offsets
from aquifer_core.formats.segment_files import (
    LOG_START_OFFSET_CHECKPOINT_NAME,
    RECOVERY_POINT_CHECKPOINT_NAME,
    REPLICATION_OFFSET_CHECKPOINT_NAME,
)

from aquifer_broker.log.atomic_file import write_atomically
from aquifer_broker.log.log_loader import LogCheckpoints
from aquifer_broker.log.log_view import LogView

__all__ = ["DirCheckpoints"]

logger = structlog.get_logger(__name__)

_Key = tuple[str, int]

_OFFSETS: Final[Mapping[str, Callable[[LogView], int]]] = {
    RECOVERY_POINT_CHECKPOINT_NAME: lambda log: log.checkpointed_recovery_point,
    LOG_START_OFFSET_CHECKPOINT_NAME: lambda log: log.log_start_offset,
    REPLICATION_OFFSET_CHECKPOINT_NAME: lambda log: log.high_watermark,
}


class DirCheckpoints:
    """Offsets of the logs of a dir: in memory, where `take` and `forget` change them, and in the files, which `save` replaces.

    The files name partitions, not topic ids. So what they say of a log that is gone must be out of them before a log of the same
    name is made, or a crash gives the new one the start of the old: `save_forgotten` sees to that.
    """

    def __init__(self, path: Path) -> None:
        """Prepares for the files in a log dir."""
        self._path = path
        self._offsets: dict[str, dict[_Key, int]] = {name: {} for name in _OFFSETS}
        # What the files may still name.
        self._forgotten: set[_Key] = set()
        # Two writers would share a temporary file, and the older content could come last.
        self._saving = threading.Lock()

    def read(self) -> bool:
        """Takes over what the files say; answers whether all of them could be read. Blocks.

        Raises:
            OSError: The disk failed.
        """
        unread = [name for name in _OFFSETS if not self._read(name)]
        return not unread

    def keep_only(self, present: Collection[_Key]) -> None:
        """Forgets partitions that have no directory: they were deleted, or moved away, before a crash."""
        named = {key for offsets in self._offsets.values() for key in offsets}
        for key in named.difference(present):
            self.forget(key)

    def of(self, key: _Key, *, clean_shutdown: bool) -> LogCheckpoints:
        """What is known of a partition."""
        return LogCheckpoints(
            clean_shutdown=clean_shutdown,
            recovery_point=self._offsets[RECOVERY_POINT_CHECKPOINT_NAME].get(key, 0),
            log_start_offset=self._offsets[LOG_START_OFFSET_CHECKPOINT_NAME].get(key),
            high_watermark=self._offsets[REPLICATION_OFFSET_CHECKPOINT_NAME].get(key, 0),
        )

    def forget(self, key: _Key) -> None:
        """Drops a partition, so that a later one of the same name starts anew."""
        for offsets in self._offsets.values():
            offsets.pop(key, None)
        self._forgotten.add(key)

    def take(self, logs: Iterable[LogView]) -> None:
        """Takes over the offsets of open logs as they are now."""
        for log in logs:
            key = (log.topic_id_partition.topic, log.topic_id_partition.partition)
            for name, offset in _OFFSETS.items():
                self._offsets[name][key] = offset(log)

    def save(self) -> None:
        """Replaces the files one by one, with what is known when their turn comes. Blocks.

        Raises:
            OSError: The disk failed.
        """
        with self._saving:
            forgotten = set(self._forgotten)
            for name, offsets in self._offsets.items():
                write_atomically(self._path / name, format_offsets(dict(offsets)))
            self._forgotten -= forgotten

    def save_forgotten(self, key: _Key) -> None:
        """Replaces the files if they may still name an earlier partition of this name. Blocks.

        Raises:
            OSError: The disk failed.
        """
        if key in self._forgotten:
            self.save()

    def _read(self, name: str) -> bool:
        try:
            self._offsets[name] = parse_offsets((self._path / name).read_bytes())
        except FileNotFoundError:
            pass
        except CorruptIndexError as error:
            # Without it everything is recovered from the start, which is slow and safe.
            logger.error("checkpoint_corrupt", path=str(self._path / name), error=str(error))
            return False
        return True
