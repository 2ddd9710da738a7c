"""The log dirs of a broker together: which partition lies where."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import structlog
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.formats.segment_files import partition_directory
from aquifer_core.ids import KafkaUuid, TopicIdPartition

from aquifer_broker.log.found_logs import FoundLog
from aquifer_broker.log.log_dir import LogDir, read_topic_id
from aquifer_broker.log.log_dir_admission import admit_log_dirs
from aquifer_broker.log.log_errors import LogStorageError, NoFreeFileError
from aquifer_broker.log.log_view import LogView
from aquifer_broker.log.move_notes import MOVING_TO_NAME, has_note
from aquifer_broker.log.rival_logs import RivalLogs

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
        lost: Collection[KafkaUuid] = (),
    ) -> None:
        """Prepares.

        Args:
            paths: `log.dirs`.
            broker_id: This broker.
            cluster_id: Its cluster.
            on_offline: Told of each dir that fails.
            lost: Directory ids of dirs that never come back, as the operator says.
        """
        self._paths = list(dict.fromkeys(path.absolute() for path in paths))
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._on_offline = on_offline
        self._dirs: list[LogDir] = []
        self._lost = frozenset(lost)
        self._missing: Sequence[str] = ()
        self._given_up: frozenset[KafkaUuid] = frozenset()
        self._homes: dict[_Key, LogDir] = {}
        self._topic_ids: dict[_Key, KafkaUuid | None] = {}
        self._rivals = RivalLogs(self._may_be_behind)
        self._refused: dict[_Key, str] = {}
        self._moving: set[_Key] = set()
        self.leftovers: list[Path] = []

    def open(self) -> None:
        """Locks and reads every dir. Blocks.

        Raises:
            InvalidConfigurationError: A dir belongs to somebody else, or no dir can be used.
        """
        admitted = admit_log_dirs(self._paths, self._open_dir, self._lost)
        self._dirs, self._missing = list(admitted.dirs), admitted.missing
        self._given_up = admitted.given_up
        found: defaultdict[_Key, list[tuple[LogDir, Path]]] = defaultdict(list)
        for log_dir in self.online:
            try:
                with log_dir.guard:
                    for key, path in self._look_into(log_dir):
                        found[key].append((log_dir, path))
            except LogStorageError:
                self._missing = [*self._missing, str(log_dir.path)]
        for key, places in found.items():
            self._adopt(key, places)
        if not self.online:
            for opened in self._dirs:
                opened.close()
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
        """Every partition that has one directory, with its topic id where it can be read."""
        return dict(self._topic_ids)

    def unsettled(self) -> Collection[_Key]:
        """Partitions of which it is not clear yet which directory is the log."""
        return self._rivals.partitions

    def has(self, key: _Key) -> bool:
        """Whether a partition has one directory."""
        return key in self._homes

    def topic_id_of(self, key: _Key) -> KafkaUuid | None:
        """The topic id in a partition's directory, where it can be read."""
        return self._topic_ids[key]

    def home_of(self, key: _Key) -> LogDir:
        """The dir that holds a partition."""
        return self._homes[key]

    def check_online(self, key: _Key) -> None:
        """Refuses a partition in an offline dir, and one of which it is not known where it is.

        Raises:
            LogStorageError: It is one of those.
        """
        if (home := self._homes.get(key)) is not None:
            home.guard.check()
        elif key in self._refused:
            raise LogStorageError(self._refused[key])

    def settle(self, topic_id_partition: TopicIdPartition) -> None:
        """Finds the home of a partition that several dirs have: copies of other topics are put aside. Idempotent. Blocks.

        Raises:
            LogStorageError: More than one is of this topic; which is the log is for people to say.
        """
        key = (topic_id_partition.topic, topic_id_partition.partition)
        try:
            found = self._rivals.settle(topic_id_partition)
        except LogStorageError as error:
            self._refuse(key, error.message)
        if found is not None:
            self._homes[key], self._topic_ids[key] = found.home, found.topic_id

    def disown(self, key: _Key) -> None:
        """Puts directories of a partition that several dirs have aside, under names ending in `-stray`. Idempotent. Blocks."""
        self._rivals.disown(key)

    def choose(
        self, topic_id_partition: TopicIdPartition, wanted: Path | None, *, is_new: bool = False
    ) -> LogDir:
        """The dir that holds a partition, else the one wanted, else the one with the fewest.

        Args:
            topic_id_partition: The partition.
            wanted: Where to put it when no dir has it.
            is_new: It has certainly never been on this broker.

        Raises:
            LogStorageError: It is offline, or all are; or it may be in a dir that cannot be looked into.
            InvalidConfigurationError: The dir wanted is none of this broker's.
        """
        key = (topic_id_partition.topic, topic_id_partition.partition)
        home = self._homes.get(key)
        if home is not None:
            home.guard.check()
            return home
        if self._missing and not is_new:
            self._refuse(
                key,
                f"{topic_id_partition} is in none of the log dirs that can be used, and may be in {', '.join(self._missing)}",
            )
        if wanted is not None:
            return self.find(wanted)
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
        self._refused.pop(key, None)
        return path

    def put_aside(self, key: _Key, suffix: str) -> Path | None:
        """Renames a partition's directory and forgets it; None when there is none. Blocks.

        Raises:
            LogStorageError: The dir is offline; the partition is forgotten all the same.
            NoFreeFileError: It is renamed, which a power cut may undo.
        """
        home = self._homes.pop(key, None)
        self._topic_ids.pop(key, None)
        if home is None:
            return None
        home.checkpoints.forget(key)
        with home.guard:
            path = home.path / partition_directory(*key)
            return home.put_aside(path, suffix) if path.exists() else None

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
        if path.absolute() in self._paths:
            raise LogStorageError(f"log dir {path} is offline")
        raise InvalidConfigurationError(f"{path} is not one of log.dirs")

    def rehome(self, key: _Key, home: LogDir) -> None:
        """Records that a partition was moved to another dir."""
        self._homes[key].checkpoints.forget(key)
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
            except (LogStorageError, NoFreeFileError) as error:
                logger.error("log_dir_not_closed", log_dir=str(log_dir.path), error=str(error))
            finally:
                log_dir.close()

    def _finish(self, log_dir: LogDir, logs: Collection[LogView], failed: Collection[Path]) -> None:
        here = [log for log in logs if log.directory.parent == log_dir.path]
        opened = {(log.topic_id_partition.topic, log.topic_id_partition.partition) for log in here}
        found = {key for key, home in self._homes.items() if home is log_dir}
        unopened = found.union(self._rivals.in_dir(log_dir)) - opened
        with log_dir.guard:
            log_dir.checkpoints.take(here)
            log_dir.checkpoints.save()
            # A log that was never opened is as clean or unclean as it was found.
            if log_dir.path not in failed and (log_dir.was_clean or not unopened):
                log_dir.mark_clean()

    def _open_dir(self, path: Path) -> LogDir:
        return LogDir(
            path,
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            on_offline=lambda guard: self._on_offline(guard.path),
        )

    def _refuse(self, key: _Key, why: str) -> NoReturn:
        self._refused[key] = why
        raise LogStorageError(why)

    def _look_into(self, log_dir: LogDir) -> Iterable[tuple[_Key, Path]]:
        self.leftovers += log_dir.leftovers()
        partitions = log_dir.partitions()
        log_dir.checkpoints.keep_only(partitions)
        for key, path in partitions.items():
            self._topic_ids[key] = read_topic_id(path)
            if has_note(path, MOVING_TO_NAME):
                self._moving.add(key)
            yield key, path

    def _adopt(self, key: _Key, places: Sequence[tuple[LogDir, Path]]) -> None:
        if len(places) == 1 and key not in self._moving:
            self._homes[key] = places[0][0]
            return
        del self._topic_ids[key]
        found = self._rivals.sort_out(key, [FoundLog.read(home, path) for home, path in places])
        if found is not None:
            self._homes[key], self._topic_ids[key] = found.home, found.topic_id

    def _may_be_behind(self, found: FoundLog) -> bool:
        """Whether the log may have gone on in a dir that cannot be looked into."""
        there = {each.id for each in self.online} | self._given_up
        return bool(self._missing) and found.moving_to not in there | {None}
