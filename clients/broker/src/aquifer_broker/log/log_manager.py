"""All logs of a broker node over its log dirs."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import structlog
from aquifer_core.clock import SystemClock
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.file_cleaner import FileCleaner
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, LogDir
from aquifer_broker.log.log_dir_set import LogDirSet
from aquifer_broker.log.log_errors import LogStorageError, NoFreeFileError
from aquifer_broker.log.log_maintenance import LogMaintenance, LogManagerSettings
from aquifer_broker.log.log_moves import FutureLog, LogMoves
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.open_files import needs_free_file, raise_open_files_limit
from aquifer_broker.log.partition_log import PartitionLog

__all__ = ["LogManager"]

logger = structlog.get_logger(__name__)

_LOGS_CLOSED_AT_ONCE: Final = 8

_Key = tuple[str, int]


class LogManager:
    """Owner of every `PartitionLog`.

    An async context manager: entering locks and reads the log dirs, leaving flushes and closes every log. A log is loaded (and
    recovered if it has to be) by `open_log`, when its topic's configuration is known: whether it is tiered decides what its
    start is.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        broker_id: int,
        cluster_id: str,
        default_config: LogConfig | None = None,
        settings: LogManagerSettings | None = None,
        clock: Clock | None = None,
        lost_log_dirs: Collection[KafkaUuid] = (),
    ) -> None:
        """Prepares; nothing is touched before the context is entered.

        Args:
            log_dirs: `log.dirs`.
            broker_id: This broker.
            cluster_id: Its cluster.
            default_config: Of logs opened without one.
            settings: Of the periodic work.
            clock: The time.
            lost_log_dirs: Directory ids of dirs that never come back; what only they had may be begun anew.
        """
        self._clock = clock or SystemClock()
        self._default_config = default_config or LogConfig()
        self._dirs = LogDirSet(
            log_dirs,
            broker_id=broker_id,
            cluster_id=cluster_id,
            on_offline=self._dir_failed,
            lost=lost_log_dirs,
        )
        self._logs: dict[_Key, PartitionLog] = {}
        self._opening: defaultdict[_Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._cleaner = FileCleaner(self._clock)
        self._offline_listeners: list[Callable[[Path], None]] = []
        self._config_listeners: list[Callable[[str], None]] = []
        self._maintenance = LogMaintenance(
            logs=lambda: tuple(self._logs.values()),
            dirs=self._dirs,
            cleaner=self._cleaner,
            settings=settings or LogManagerSettings(),
        )
        self._moves = LogMoves(resources_of=self._resources, moved=self._moved)
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Opens the log dirs.

        Raises:
            InvalidConfigurationError: A dir belongs to somebody else, or none can be used.
        """
        raise_open_files_limit()
        await on_disk(self._dirs.open)
        for path in self._dirs.leftovers:
            self._cleaner.schedule([path], 0)
        await self._running.enter_async_context(self._maintenance)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._moves.close()
        await self._running.aclose()
        failed: set[Path] = set()
        slots = asyncio.Semaphore(_LOGS_CLOSED_AT_ONCE)

        async def close(log: PartitionLog) -> None:
            async with slots:
                try:
                    await log.close()
                except Exception:
                    logger.exception("log_not_closed", partition=str(log.topic_id_partition))
                    failed.add(log.directory.parent)

        await asyncio.gather(*map(close, self._logs.values()))
        await self._cleaner.remove_all()
        await on_disk(self._dirs.close, tuple(self._logs.values()), failed)
        self._logs.clear()

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log if it is open here.

        Raises:
            LogStorageError: it is in an offline log dir.
        """
        key = (topic, partition)
        self._dirs.check_online(key)
        return self._logs.get(key)

    def logs(self) -> Iterable[PartitionLog]:
        """Every open log in an online log dir."""
        return tuple(log for key, log in self._logs.items() if self._dirs.home_of(key).guard.online)

    async def open_log(
        self,
        topic_id_partition: TopicIdPartition,
        config: LogConfig | None = None,
        *,
        replicated: bool = False,
        log_dir: Path | None = None,
        is_new: bool = False,
    ) -> PartitionLog:
        """The existing log, loaded, or a new one. Idempotent. A log of another topic id under the same name is put aside and deleted.

        Args:
            topic_id_partition: The partition.
            config: The topic's configuration; None: the defaults.
            replicated: False: the high watermark is the end offset.
            log_dir: Where to make a new log; None: the dir with the fewest.
            is_new: The partition has certainly never been on this broker, so that a log dir that is missing cannot have it.

        Raises:
            LogStorageError: its log dir is offline, or all are; or it may be in a dir that is missing, or is in several.
        """
        key = (topic_id_partition.topic, topic_id_partition.partition)
        async with self._opening[key]:
            log = self._logs.get(key)
            if log is not None and log.topic_id_partition != topic_id_partition:
                await self._remove(key, DELETE_SUFFIX)
                log = None
            if log is None:
                home = await self._find_home(topic_id_partition, log_dir, is_new=is_new)
                log = await self._load(topic_id_partition, config or self._default_config, home)
                self._logs[key] = log
                if log.recovery_point < log.active_base_offset:
                    # What a crash has left in the page cache waits for the disk like what is rolled now.
                    self._maintenance.rolled(topic_id_partition)
            else:
                self._dirs.check_online(key)
                if config is not None:
                    log.update_config(config)
            log.set_replicated(replicated)
            return log

    async def delete_log(self, topic: str, partition: int) -> None:
        """Renames the directory to `-delete`, which is removed later; idempotent."""
        async with self._opening[topic, partition]:
            await self._remove((topic, partition), DELETE_SUFFIX)

    async def delete_strays(self, known: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
        """Puts aside, under a name ending in `-stray`, what the cluster does not assign to this broker. Nothing is removed.

        A directory without a readable topic id counts as known when its name is.
        """
        ids = {(each.topic, each.partition): each.topic_id for each in known}
        strays = []
        for key, topic_id in self._dirs.stored().items():
            if key in ids and topic_id in (None, ids[key]):
                continue
            async with self._opening[key]:
                logger.warning("stray_log_put_aside", topic=key[0], partition=key[1])
                await self._remove(key, STRAY_SUFFIX)
            strays.append(TopicIdPartition(topic_id or KafkaUuid.ZERO, *key))
        for key in list(self._dirs.unsettled()):
            if key not in ids:
                await on_disk(self._dirs.disown, key)
                strays.append(TopicIdPartition(KafkaUuid.ZERO, *key))
        return strays

    async def move_log(self, topic: str, partition: int, log_dir: Path) -> None:
        """Begins to move a log to another log dir; it serves on meanwhile (AlterReplicaLogDirs, SR-28). Idempotent.

        Raises:
            RemoteResourceNotFoundError: (PARTITION_NOT_FOUND) the log is not open here.
            InvalidConfigurationError: the dir is none of `log.dirs`.
            LogStorageError: the log's dir or the new one is offline.
        """
        async with self._opening[topic, partition]:
            log = self.get(topic, partition)
            target = self._dirs.find(log_dir)
            if log is None:
                raise RemoteResourceNotFoundError(
                    f"{topic}-{partition} is not on this broker",
                    reason=ErrorReason.PARTITION_NOT_FOUND,
                )
            await self._moves.start(log, target)

    def future_logs(self) -> Sequence[FutureLog]:
        """Moves under way, for DescribeLogDirs."""
        return self._moves.future_logs()

    async def wait_for_move(self, topic: str, partition: int) -> None:
        """Returns when no move of a log is under way."""
        await self._moves.wait((topic, partition))

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Hands a changed configuration to the topic's open logs."""
        for key, log in self._logs.items():
            if key[0] == topic:
                log.update_config(config)
        for listener in self._config_listeners:
            listener(topic)

    def log_dir_states(self) -> Sequence[tuple[Path, KafkaUuid, bool]]:
        """(path, directory id, online) in the order configured."""
        return self._dirs.states()

    def on_rolled(self, listener: Callable[[TopicIdPartition], None]) -> None:
        """Calls the listener in the event loop when rolled segments are durable; it must not block."""
        self._maintenance.on_rolled(listener)

    def on_config_changed(self, listener: Callable[[str], None]) -> None:
        """Calls the listener with the topic whenever `update_topic_config` was called; it must not block."""
        self._config_listeners.append(listener)

    def on_log_dir_offline(self, listener: Callable[[Path], None]) -> None:
        """Calls the listener once for each log dir that fails; it must not block."""
        self._offline_listeners.append(listener)

    def seconds_since_success(self) -> dict[str, float]:
        """Age of the last success of each maintenance loop."""
        return self._maintenance.seconds_since_success()

    async def run_retention(self) -> int:
        """One retention pass over every log now; number of segments deleted."""
        return await self._maintenance.run_retention()

    async def write_checkpoints(self) -> None:
        """Writes the checkpoint files of every log dir now."""
        await self._maintenance.write_checkpoints()

    async def _find_home(
        self, topic_id_partition: TopicIdPartition, wanted: Path | None, *, is_new: bool
    ) -> LogDir:
        key = (topic_id_partition.topic, topic_id_partition.partition)
        if key in self._dirs.unsettled():
            await on_disk(self._dirs.settle, topic_id_partition)
        is_stored = self._dirs.has(key)
        if is_stored and self._dirs.topic_id_of(key) not in (None, topic_id_partition.topic_id):
            logger.warning("log_of_other_topic_deleted", partition=str(topic_id_partition))
            await self._remove(key, DELETE_SUFFIX)
        home = self._dirs.choose(topic_id_partition, wanted, is_new=is_new)
        if not is_stored and not is_new:
            # Nobody knows whether it ever had records: the topic may be older than this start without having been led here.
            logger.warning("log_in_no_log_dir_begun", partition=str(topic_id_partition))
        return home

    async def _load(
        self, topic_id_partition: TopicIdPartition, config: LogConfig, home: LogDir
    ) -> PartitionLog:
        with home.guard, needs_free_file(home.path):
            directory = await on_disk(self._dirs.prepare, home, topic_id_partition)
        return await PartitionLog.open(
            directory,
            topic_id_partition,
            config,
            self._resources(home),
            home.checkpoints.of(
                (topic_id_partition.topic, topic_id_partition.partition),
                clean_shutdown=home.was_clean,
            ),
        )

    def _resources(self, home: LogDir) -> LogResources:
        return LogResources(
            guard=home.guard,
            cleaner=self._cleaner,
            clock=self._clock,
            on_rolled=self._maintenance.rolled,
            log_dir_id=home.id,
        )

    async def _moved(self, log: PartitionLog, home: LogDir, left: Path) -> None:
        key = (log.topic_id_partition.topic, log.topic_id_partition.partition)
        source = self._dirs.home_of(key)
        self._dirs.rehome(key, home)
        with source.guard:
            gone = await on_disk(source.put_aside, left, DELETE_SUFFIX)
        self._cleaner.schedule([gone], log.config.file_delete_delay_ms)

    async def _remove(self, key: _Key, suffix: str) -> None:
        await self._moves.cancel(key)
        log = self._logs.pop(key, None)
        if log is not None:
            await log.retire()
        try:
            path = await on_disk(self._dirs.put_aside, key, suffix)
        except (LogStorageError, NoFreeFileError):
            # If the dir is gone and comes back, the log in it is a stray; a renamed one goes at the next start.
            return
        if path is not None and suffix == DELETE_SUFFIX:
            delay_ms = (log.config if log else self._default_config).file_delete_delay_ms
            self._cleaner.schedule([path], delay_ms)

    def _dir_failed(self, path: Path) -> None:
        for listener in self._offline_listeners:
            listener(path)
