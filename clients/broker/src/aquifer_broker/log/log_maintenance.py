"""Periodic work on the logs of a broker: retention, flushing, checkpoints, removal of deleted files."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Self

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.file_cleaner import FileCleaner
from aquifer_broker.log.log_dir_set import LogDirSet
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.partition_log import PartitionLog

__all__ = ["LogMaintenance", "LogManagerSettings"]

logger = structlog.get_logger(__name__)

_CLEAN_INTERVAL_S: Final = 1.0
_FLUSHED_AT_ONCE: Final = 4
# Flushing is woken by rolls; now and then it looks by itself.
_FLUSH_INTERVAL_S: Final = 10.0
_NO_FLUSH_INTERVAL_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """Broker properties of the log manager, in Kafka's units and defaults.

    Attributes:
        retention_check_interval_ms: `log.retention.check.interval.ms`.
        checkpoint_interval_ms: `log.flush.offset.checkpoint.interval.ms`.
        flush_scheduler_interval_ms: `log.flush.scheduler.interval.ms`; the default never flushes by time.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
    """

    retention_check_interval_ms: int = 300_000
    checkpoint_interval_ms: int = 60_000
    flush_scheduler_interval_ms: int = _NO_FLUSH_INTERVAL_MS
    producer_id_expiration_ms: int = 86_400_000


class LogMaintenance:
    """Supervised loops over all open logs while the context is open. One bad log does not hold up the others."""

    def __init__(
        self,
        *,
        logs: Callable[[], Collection[PartitionLog]],
        dirs: LogDirSet,
        cleaner: FileCleaner,
        settings: LogManagerSettings,
    ) -> None:
        self._logs = logs
        self._dirs = dirs
        self._settings = settings
        self._rolled: set[TopicIdPartition] = set()
        self._listeners: list[Callable[[TopicIdPartition], None]] = []
        self._flush_loop = SupervisedLoop(
            "log_flush", self.flush_rolled, interval_s=_FLUSH_INTERVAL_S
        )
        self._loops = [
            self._flush_loop,
            SupervisedLoop(
                "log_retention",
                self.run_retention,
                interval_s=settings.retention_check_interval_ms / 1000,
            ),
            SupervisedLoop(
                "log_checkpoints",
                self.write_checkpoints,
                interval_s=settings.checkpoint_interval_ms / 1000,
            ),
            SupervisedLoop("log_cleaner", cleaner.remove_due, interval_s=_CLEAN_INTERVAL_S),
        ]
        if settings.flush_scheduler_interval_ms < _NO_FLUSH_INTERVAL_MS:
            interval_s = settings.flush_scheduler_interval_ms / 1000
            self._loops.append(
                SupervisedLoop("log_flush_by_time", self.flush_due, interval_s=interval_s)
            )
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for loop in self._loops:
            await self._running.enter_async_context(loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    def on_rolled(self, listener: Callable[[TopicIdPartition], None]) -> None:
        """Adds a listener for rolled segments that are durable."""
        self._listeners.append(listener)

    def rolled(self, topic_id_partition: TopicIdPartition) -> None:
        """Takes note of a roll: the finished segment is flushed soon, then listeners are told."""
        self._rolled.add(topic_id_partition)
        self._flush_loop.wake()

    def seconds_since_success(self) -> dict[str, float]:
        """Age of the last success of each loop."""
        return {loop.name: loop.seconds_since_success() for loop in self._loops}

    async def flush_rolled(self) -> None:
        """Makes segments durable that were rolled since the last run, and tells of them."""
        rolled, self._rolled = self._rolled, set()
        logs = [log for log in self._logs() if log.topic_id_partition in rolled]
        slots = asyncio.Semaphore(_FLUSHED_AT_ONCE)

        async def flush(log: PartitionLog) -> None:
            async with slots:
                flushed = await self._attempt(log, log.flush_rolled)
            if not flushed:
                self._rolled.add(log.topic_id_partition)
                return
            for listener in self._listeners:
                listener(log.topic_id_partition)

        async with asyncio.TaskGroup() as group:
            for log in logs:
                group.create_task(flush(log))

    async def flush_due(self) -> None:
        """Makes logs durable whose `flush.ms` is over."""
        for log in self._logs():
            await self._attempt(log, log.flush_if_due)

    async def run_retention(self) -> int:
        """One retention pass over every log; number of segments deleted."""
        deleted = 0
        for log in self._logs():
            try:
                deleted += await log.apply_local_retention()
                log.remove_expired_producers(self._settings.producer_id_expiration_ms)
            except AquiferError as error:
                self._report(log, error)
            # Thousands of logs must not hold up requests.
            await asyncio.sleep(0)
        return deleted

    async def write_checkpoints(self) -> None:
        """Writes recovery points, log start offsets and high watermarks of every online dir."""
        for log_dir in self._dirs.online:
            here = [log for log in self._logs() if log.directory.parent == log_dir.path]
            with log_dir.guard:
                log_dir.checkpoints.take(here)
                await on_disk(log_dir.checkpoints.save)

    async def _attempt(self, log: PartitionLog, action: Callable[[], Awaitable[None]]) -> bool:
        try:
            await action()
        except AquiferError as error:
            self._report(log, error)
            return False
        return True

    @staticmethod
    def _report(log: PartitionLog, error: AquiferError) -> None:
        level = logger.debug if isinstance(error, LogStorageError) else logger.error
        level("log_maintenance_failed", partition=str(log.topic_id_partition), error=str(error))
