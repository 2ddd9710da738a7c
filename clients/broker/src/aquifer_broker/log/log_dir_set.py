"""The log dirs of a broker together: which partition lies where."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import structlog
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.formats.segment_files import LOG_SUFFIX
from aquifer_core.ids import KafkaUuid, TopicIdPartition

from aquifer_broker.log.log_dir import STRAY_SUFFIX, LogDir, read_topic_id
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_view import LogView

__all__ = ["LogDirSet"]

logger = structlog.get_logger(__name__)

_Key = tuple[str, int]


class LogDirSet:
    """Log dirs in the order configured. Methods that block say so.

    Attributes:
        leftovers: directories found at the start that are to be removed.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        broker_id: int,
        cluster_id: str,
        on_offline: Callable[[Path], None],
    ) -> None:
        self._paths = list(dict.fromkeys(path.absolute() for path in paths))
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._on_offline = on_offline
        self._dirs: list[LogDir] = []
        self._failed: list[Path] = []
        self._homes: dict[_Key, LogDir] = {}
        self._topic_ids: dict[_Key, KafkaUuid | None] = {}
        self.leftovers: list[Path] = []

    def open(self) -> None:
        """Locks and reads every dir. Blocks.

        Raises:
            InvalidConfigurationError: A dir belongs to somebody else, or no dir can be used.
        """
        for path in self._paths:
            try:
                log_dir = LogDir(
                    path,
                    broker_id=self._broker_id,
                    cluster_id=self._cluster_id,
                    on_offline=lambda guard: self._on_offline(guard.path),
                )
                self._dirs.append(log_dir)
                with log_dir.guard:
                    self._adopt(log_dir)
            except LogStorageError:
                self._failed.append(path)
            except InvalidConfigurationError:
                for opened in self._dirs:
                    opened.close()
                raise
        if not any(log_dir.guard.online for log_dir in self._dirs):
            text = ",".join(map(str, self._paths))
            raise InvalidConfigurationError(
                f"log.dirs={text!r} is not valid: no directory can be used; "
                "give at least one that this process may write to"
            )

    @property
    def online(self) -> list[LogDir]:
        """Dirs that work."""
        return [log_dir for log_dir in self._dirs if log_dir.guard.online]

    def states(self) -> list[tuple[Path, KafkaUuid, bool]]:
        """(path, directory id, online) in the order configured."""
        known = {log_dir.path: log_dir for log_dir in self._dirs}
        return [
            (path, known[path].id, known[path].guard.online)
            if path in known
            else (path, KafkaUuid.ZERO, False)
            for path in self._paths
        ]

    def stored(self) -> dict[_Key, KafkaUuid | None]:
        """Every partition that has a directory, with its topic id where it can be read."""
        return dict(self._topic_ids)

    def home_of(self, key: _Key) -> LogDir:
        """The dir that holds a partition."""
        return self._homes[key]

    def check_online(self, key: _Key) -> None:
        """Refuses a partition in an offline dir.

        Raises:
            LogStorageError: It is in one.
        """
        if (home := self._homes.get(key)) is not None:
            home.guard.check()

    def choose(self, key: _Key, wanted: Path | None) -> LogDir:
        """The dir that holds a partition, else the one wanted, else the one with the fewest.

        Raises:
            LogStorageError: It is offline, or all are.
            InvalidConfigurationError: The dir wanted is none of this broker's.
        """
        home = self._homes.get(key)
        if home is None and wanted is not None:
            return self.find(wanted)
        if home is not None:
            home.guard.check()
            return home
        if not self.online:
            raise LogStorageError("every log dir is offline")
        load = Counter(id(each) for each in self._homes.values())
        return min(self.online, key=lambda each: load[id(each)])

    def prepare(self, home: LogDir, topic_id_partition: TopicIdPartition) -> Path:
        """The directory of a partition in its home, made if need be. Blocks.

        Raises:
            OSError: The disk failed.
        """
        key = (topic_id_partition.topic, topic_id_partition.partition)
        path = home.create_partition(*key, topic_id_partition.topic_id)
        self._homes[key] = home
        self._topic_ids[key] = topic_id_partition.topic_id
        return path

    def put_aside(self, key: _Key, suffix: str) -> Path | None:
        """Renames a partition's directory and forgets it; None when there is none. Blocks.

        Raises:
            LogStorageError: The dir is offline; the partition is forgotten all the same.
        """
        home = self._homes.pop(key, None)
        self._topic_ids.pop(key, None)
        if home is None:
            return None
        home.forget(key)
        with home.guard:
            path = home.partitions().get(key)
            return None if path is None else home.put_aside(path, suffix)

    def find(self, path: Path) -> LogDir:
        """One of the dirs, online.

        Raises:
            InvalidConfigurationError: It is none of this broker's.
            LogStorageError: It is offline.
        """
        for each in self._dirs:
            if each.path == path.absolute():
                each.guard.check()
                return each
        if path.absolute() in self._failed:
            raise LogStorageError(f"log dir {path} is offline")
        raise InvalidConfigurationError(f"{path} is not one of log.dirs")

    def rehome(self, key: _Key, home: LogDir) -> None:
        """Records that a partition was moved to another dir."""
        self._homes[key].forget(key)
        self._homes[key] = home

    def close(self, logs: Collection[LogView], failed: Collection[Path]) -> None:
        """Writes the checkpoints, marks dirs clean and unlocks them. Blocks.

        Args:
            logs: The logs that were open.
            failed: Dirs in which a log could not be closed; they need recovery.
        """
        for log_dir in self._dirs:
            try:
                if log_dir.guard.online:
                    self._finish(log_dir, logs, failed)
            except LogStorageError as error:
                logger.error("log_dir_not_closed", log_dir=str(log_dir.path), error=str(error))
            finally:
                log_dir.close()

    def _finish(self, log_dir: LogDir, logs: Collection[LogView], failed: Collection[Path]) -> None:
        here = [log for log in logs if log.directory.parent == log_dir.path]
        opened = {(log.topic_id_partition.topic, log.topic_id_partition.partition) for log in here}
        unopened = {key for key, home in self._homes.items() if home is log_dir} - opened
        with log_dir.guard:
            log_dir.write_files(log_dir.update_checkpoints(here))
            # A log that was never opened is as clean or unclean as it was found.
            if log_dir.path not in failed and (log_dir.was_clean or not unopened):
                log_dir.mark_clean()

    def _adopt(self, log_dir: LogDir) -> None:
        self.leftovers += log_dir.leftovers()
        for key, path in log_dir.partitions().items():
            other = self._homes.get(key)
            if other is not None and not self._resolve_duplicate(key, other, log_dir):
                continue
            self._homes[key] = log_dir
            self._topic_ids[key] = read_topic_id(path)

    def _resolve_duplicate(self, key: _Key, first: LogDir, second: LogDir) -> bool:
        """Keeps the copy that reaches further after a crash at the end of a move; answers whether it is the second."""
        paths = first.partitions()[key], second.partitions()[key]
        second_wins = _reach(paths[1]) > _reach(paths[0])
        loser = (first, paths[0]) if second_wins else (second, paths[1])
        logger.warning("duplicate_log_put_aside", path=str(loser[1]))
        loser[0].put_aside(loser[1], STRAY_SUFFIX)
        return second_wins


def _reach(directory: Path) -> tuple[str, int]:
    """Name and size of the last segment file: what grows first after a move."""
    files = sorted(path for path in directory.iterdir() if path.suffix == LOG_SUFFIX)
    return (files[-1].name, files[-1].stat().st_size) if files else ("", 0)
