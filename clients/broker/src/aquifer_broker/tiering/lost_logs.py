"""Finds out what lost disks and files have cost, and has it restored; nothing else waits for that (SR-36)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final, Self, TypeVar

import structlog
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.cluster.awaited_logs import AwaitedLog
from aquifer_broker.cluster.hosted_partitions import (
    HostedPartition,
    HostedPartitions,
    LeadershipListener,
)
from aquifer_broker.tiering.log_restoration import LogRestoration
from aquifer_broker.tiering.remote_part import find_remote_part

__all__ = ["LostLogs"]

logger = structlog.get_logger(__name__)

T = TypeVar("T", AwaitedLog, HostedPartition)

_AT_ONCE: Final = 16
_INTERVAL_S: Final = 60.0
_BACKOFF_MAX_S: Final = 5.0


class LostLogs:
    """Works off `HostedPartitions.awaited`, and hosted logs that lack leader epochs, for as long as it takes.

    An async context manager. A log that was merely begun anew needs one question to the metadata role; what has to be restored
    has a loop of its own, so that new partitions do not wait for it.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        *,
        completed: Callable[[], None],
    ) -> None:
        """Prepares.

        Args:
            partitions: What is hosted here, and what is not yet.
            metadata: Where remote segments are known.
            storage: Where their leader epochs and producer snapshots are.
            completed: Called when a hosted log has all its leader epochs; must not block.
        """
        self._partitions = partitions
        self._metadata = metadata
        self._restoration = LogRestoration(metadata, storage)
        self._completed = completed
        self._lost: set[TopicIdPartition] = set()
        self._reasons: dict[TopicIdPartition, str] = {}
        self._comparing = SupervisedLoop(
            "comparison with remote storage",
            self._compare,
            interval_s=_INTERVAL_S,
            backoff_max_s=_BACKOFF_MAX_S,
        )
        self._restoring = SupervisedLoop(
            "restoration from remote storage",
            self._restore,
            interval_s=_INTERVAL_S,
            backoff_max_s=_BACKOFF_MAX_S,
        )
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._partitions.awaited.on_added(self._wake)
        self._partitions.add_listener(
            LeadershipListener(on_hosted=self._hosted, on_stopped=lambda *_: None)
        )
        await self._running.enter_async_context(self._comparing)
        await self._running.enter_async_context(self._restoring)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    def _wake(self) -> None:
        self._comparing.wake()
        if self._lost:
            self._restoring.wake()

    def _hosted(self, hosted: HostedPartition) -> None:
        if _lacks_epochs(hosted):
            self._restoring.wake()

    async def _compare(self) -> None:
        """Has logs hosted of which nothing is remote; the others are lost until they are restored."""
        awaited = self._partitions.awaited.logs()
        errors = await self._for_each(
            [each for each in awaited if each.topic_id_partition not in self._lost],
            self._compare_one,
        )
        if errors:
            raise errors[0]

    async def _compare_one(self, awaited: AwaitedLog) -> None:
        tip = awaited.topic_id_partition
        try:
            remote = await find_remote_part(self._metadata, tip)
        except BaseException:
            self._partitions.awaited.asked(tip)
            raise
        if remote.is_empty:
            await self._partitions.confirm(awaited)
            return
        logger.warning(
            "log_lacks_remote_records",
            partition=str(tip),
            local_end_offset=awaited.log.log_end_offset,
            remote_end_offset=remote.end_offset,
        )
        self._lost.add(tip)
        if not awaited.is_leader:
            self._partitions.awaited.asked(tip)
        self._restoring.wake()

    async def _restore(self) -> None:
        awaited = self._partitions.awaited
        self._lost.intersection_update(each.topic_id_partition for each in awaited.logs())
        errors = await self._for_each(
            [each for each in awaited.logs() if self._is_ready(each)], self._restore_one
        )
        errors += await self._for_each(
            [each for each in self._partitions.hosted() if _lacks_epochs(each)],
            self._complete_one,
        )
        if errors:
            raise errors[0]

    def _is_ready(self, awaited: AwaitedLog) -> bool:
        return awaited.is_leader and awaited.topic_id_partition in self._lost

    async def _restore_one(self, awaited: AwaitedLog) -> None:
        try:
            await self._restoration.restore(awaited)
            await self._partitions.confirm(awaited)
        finally:
            self._partitions.awaited.asked(awaited.topic_id_partition)
        self._lost.discard(awaited.topic_id_partition)

    async def _complete_one(self, hosted: HostedPartition) -> None:
        await self._restoration.complete_leader_epochs(hosted.log)
        self._completed()

    async def _for_each(
        self, items: Iterable[T], work: Callable[[T], Awaitable[None]]
    ) -> list[Exception]:
        """Works on some at once, and on all in any case; returns what went wrong."""
        slots = asyncio.Semaphore(_AT_ONCE)
        errors: list[Exception] = []

        async def one(item: T) -> None:
            async with slots:
                try:
                    await work(item)
                except Exception as error:
                    errors.append(error)
                    self._tell(item.topic_id_partition, str(error))
                else:
                    self._reasons.pop(item.topic_id_partition, None)

        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
        return errors

    def _tell(self, topic_id_partition: TopicIdPartition, reason: str) -> None:
        """One line for each new reason; the loop's own lines tell that it lasts."""
        if self._reasons.get(topic_id_partition) != reason:
            self._reasons[topic_id_partition] = reason
            logger.warning(
                "log_waits_for_remote_storage", partition=str(topic_id_partition), error=reason
            )


def _lacks_epochs(hosted: HostedPartition) -> bool:
    return hosted.is_leader and hosted.log.lacks_leader_epochs
