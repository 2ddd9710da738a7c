"""One log dir: its identity, its checkpoint files, the partition directories in it (K-6.1)."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import CorruptIndexError, InvalidConfigurationError
from aquifer_core.formats.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from aquifer_core.formats.partition_metadata import (
    format_partition_metadata,
    parse_partition_metadata,
)
from aquifer_core.formats.segment_files import (
    CLEAN_SHUTDOWN_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    parse_partition_directory,
    partition_directory,
)
from aquifer_core.ids import KafkaUuid

from aquifer_broker.log.atomic_file import fsync_directory, write_atomically
from aquifer_broker.log.dir_checkpoints import DirCheckpoints
from aquifer_broker.log.known_dirs import KNOWN_DIRS_NAME, KnownDirs
from aquifer_broker.log.storage_guard import StorageGuard

__all__ = [
    "DELETE_SUFFIX",
    "FUTURE_SUFFIX",
    "STRAY_SUFFIX",
    "LogDir",
    "read_topic_id",
]

logger = structlog.get_logger(__name__)

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
_LOCK_NAME: Final = ".lock"
_CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
_MAX_NAME_BYTES: Final = 255


class LogDir:
    """A log dir, locked against other processes while open.

    Attributes:
        id: Directory id, kept in `meta.properties`; zero: nobody has used the dir yet, or it is not the one meant.
        known: The broker's log dirs as they were when this one was used last.
        was_clean: Whether the last owner closed every log.
        checkpoints: Offsets of its logs.
    """

    def __init__(
        self,
        path: Path,
        *,
        broker_id: int,
        cluster_id: str,
        on_offline: Callable[[StorageGuard], None],
    ) -> None:
        """Opens or makes the dir; `identify` is for one without an id. Blocks.

        Raises:
            InvalidConfigurationError: It belongs to another broker or cluster, or another process uses it.
            LogStorageError: The disk failed.
        """
        self.path = path
        self.guard = StorageGuard(path, on_offline)
        self.id = KafkaUuid.ZERO
        self.known = KnownDirs()
        self.was_clean = False
        self._owner = MetaProperties(cluster_id=cluster_id, node_id=broker_id)
        self._lock = -1
        self.checkpoints = DirCheckpoints(path)
        try:
            with self.guard:
                _make(path)
                self._take_lock()
                self._read_identity()
                self.known = self._read_known()
                marker = path / CLEAN_SHUTDOWN_NAME
                self.was_clean = marker.exists()
                marker.unlink(missing_ok=True)
                if not self.checkpoints.read():
                    self.was_clean = False
        except BaseException:
            self.close()
            raise

    def identify(self) -> None:
        """Gives a dir that has none a directory id. Blocks.

        Raises:
            OSError: The disk failed.
        """
        new_id = KafkaUuid.random()
        owner = replace(self._owner, directory_id=new_id)
        write_atomically(self.path / META_PROPERTIES_NAME, format_meta_properties(owner))
        self.id = new_id

    def remember(self, known: KnownDirs) -> None:
        """Keeps what log dirs the broker has, for a start at which one is missing. Blocks.

        Raises:
            OSError: The disk failed.
        """
        if known != self.known:
            write_atomically(self.path / KNOWN_DIRS_NAME, known.format())
            self.known = known

    def partitions(self) -> dict[tuple[str, int], Path]:
        """Directories of live partitions. Blocks."""
        found = {}
        for path in self.path.iterdir():
            key = parse_partition_directory(path.name)
            if key is not None and path.is_dir():
                found[key] = path
        return found

    def leftovers(self) -> list[Path]:
        """Directories of deleted partitions and of unfinished moves. Blocks."""
        return [
            path
            for path in self.path.iterdir()
            if path.is_dir() and path.name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX))
        ]

    def create_partition(self, topic: str, partition: int, topic_id: KafkaUuid) -> Path:
        """Makes the directory of a new partition. Blocks.

        Raises:
            OSError: The disk failed.
        """
        self.checkpoints.save_forgotten((topic, partition))
        path = self.path / partition_directory(topic, partition)
        path.mkdir(exist_ok=True)
        write_atomically(path / PARTITION_METADATA_NAME, format_partition_metadata(topic_id))
        fsync_directory(self.path)
        return path

    def put_aside(self, path: Path, suffix: str) -> Path:
        """Renames a partition's directory so that it no longer counts, as Kafka does. Blocks."""
        new = path.with_name(_unique_name(path.name, suffix))
        path.rename(new)
        fsync_directory(self.path)
        return new

    def make_future(self, name: str) -> Path:
        """An empty directory for a log that is being moved here. Blocks.

        Raises:
            OSError: The disk failed.
        """
        path = self.path / _unique_name(name, FUTURE_SUFFIX)
        path.mkdir()
        return path

    def drop_future(self, path: Path) -> None:
        """Removes what a move has left behind, if anything; a failure leaves it to the next start. Blocks."""
        shutil.rmtree(path, ignore_errors=True)

    def install_future(self, future: Path, final: Path) -> None:
        """Writes the checkpoints, which know the moved log, then gives its directory the real name. Blocks.

        Raises:
            OSError: The disk failed.
        """
        self.checkpoints.save()
        future.rename(final)
        fsync_directory(self.path)

    def withdraw(self, future: Path, final: Path) -> None:
        """Takes the name back that `install_future` gave. Idempotent. Blocks.

        Before anything is removed: a crash meanwhile must not leave half a log under the name of a whole one. A failure leaves the
        whole.
        """
        if future.exists():
            # What has the final name is not of this move.
            return
        try:
            final.rename(future)
            fsync_directory(self.path)
        except OSError as error:
            logger.warning("moved_log_not_withdrawn", path=str(final), error=str(error))

    def mark_clean(self) -> None:
        """Tells the next owner that every log was closed. Blocks."""
        write_atomically(self.path / CLEAN_SHUTDOWN_NAME, _CLEAN_SHUTDOWN_CONTENT)

    def close(self) -> None:
        """Lets other processes have the dir; idempotent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise InvalidConfigurationError(
                f"log.dirs={str(self.path)!r} is not valid: another process uses it; stop it or give another directory"
            ) from error

    def _read_identity(self) -> None:
        path = self.path / META_PROPERTIES_NAME
        try:
            meta = parse_meta_properties(path.read_bytes())
        except FileNotFoundError:
            return
        except CorruptIndexError as error:
            # As an unreadable disk: whose it is, and what is in it, cannot be told.
            raise OSError(errno.EIO, f"{path} cannot be read: {error}") from error
        owner = self._owner
        if (meta.cluster_id, meta.node_id) != (owner.cluster_id, owner.node_id):
            raise InvalidConfigurationError(
                f"log.dirs={str(self.path)!r} is not valid: it belongs to broker {meta.node_id} of cluster "
                f"{meta.cluster_id!r}, not to broker {owner.node_id} of cluster {owner.cluster_id!r}; give an empty directory"
            )
        if meta.directory_id is None:
            self.identify()
        else:
            self.id = meta.directory_id

    def _read_known(self) -> KnownDirs:
        path = self.path / KNOWN_DIRS_NAME
        try:
            return KnownDirs.parse(path.read_bytes())
        except FileNotFoundError:
            return KnownDirs()
        except CorruptIndexError as error:
            raise OSError(errno.EIO, f"{path} cannot be read: {error}") from error


def _make(path: Path) -> None:
    """Makes a dir and those above it, durably: what is in it later must not go with its name."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        fsync_directory(each.parent)


def _unique_name(name: str, suffix: str) -> str:
    """A name for a partition's directory that does not count; a long one is cut, as Kafka does."""
    unique = f".{os.urandom(16).hex()}{suffix}"
    return name[: _MAX_NAME_BYTES - len(unique)] + unique


def read_topic_id(directory: Path) -> KafkaUuid | None:
    """The topic id in `partition.metadata`; None when there is none that can be read. Blocks."""
    try:
        return parse_partition_metadata((directory / PARTITION_METADATA_NAME).read_bytes())
    except (FileNotFoundError, CorruptIndexError):
        return None
