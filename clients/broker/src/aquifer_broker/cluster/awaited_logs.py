"""Logs that are not served yet: what their disk lost, remote storage may have."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aquifer_core.ids import TopicIdPartition

from aquifer_broker.log.partition_log import PartitionLog

__all__ = ["AwaitedLog", "AwaitedLogs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedLog:
    """A log on this broker that nobody may use before it was compared with remote storage."""

    topic_id_partition: TopicIdPartition
    log: PartitionLog
    leader_epoch: int
    is_leader: bool


class AwaitedLogs:
    """What is held back, and whether remote storage was asked about it at least once."""

    def __init__(self) -> None:
        self._logs: dict[TopicIdPartition, AwaitedLog] = {}
        self._unasked: set[TopicIdPartition] = set()
        self._listeners: list[Callable[[], None]] = []
        self._moved = asyncio.Event()

    def __contains__(self, topic_id_partition: TopicIdPartition) -> bool:
        return topic_id_partition in self._logs

    def logs(self) -> Sequence[AwaitedLog]:
        """Everything that is held back."""
        return tuple(self._logs.values())

    def on_added(self, listener: Callable[[], None]) -> None:
        """Calls the listener when a log is held back, or its leader epoch changed; it must not block."""
        self._listeners.append(listener)

    def add(self, awaited: AwaitedLog) -> None:
        """Holds a log back. Idempotent."""
        tip = awaited.topic_id_partition
        before = self._logs.get(tip)
        if awaited == before:
            return
        self._logs[tip] = awaited
        if before is None:
            self._unasked.add(tip)
        for listener in self._listeners:
            listener()

    def discard(self, topic_id_partition: TopicIdPartition) -> None:
        """Holds a log back no longer. Idempotent."""
        self._logs.pop(topic_id_partition, None)
        self.asked(topic_id_partition)

    def asked(self, topic_id_partition: TopicIdPartition) -> None:
        """Remote storage was asked about a log, and answered or not. Idempotent."""
        self._unasked.discard(topic_id_partition)
        self._moved.set()

    async def wait_asked(self) -> bool:
        """Waits until remote storage was asked about every log; False: it was already."""
        waited = False
        while self._unasked:
            waited = True
            self._moved.clear()
            await self._moved.wait()
        return waited
