"""Which partitions lose their remote data: those that metadata says are being deleted, whoever asked for it, and when (T20, K-3.12).

Nothing about deletions is kept here. A manager that starts, or that lost everything, finds in metadata what is left to do; several
managers find the same and do no harm to one another.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from aquifer_core.errors import InvalidStateTransitionError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.segment import RemotePartitionDeleteMetadata
from aquifer_core.state import RemotePartitionDeleteState

from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import TaskKey, TaskType

__all__ = ["PartitionDeletions"]

logger = structlog.get_logger(__name__)

_MARKS_AT_ONCE: Final = 8


class PartitionDeletions:
    """Marks partitions in metadata, and has a task for each partition that is marked there."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        schedule: Callable[[TaskKey], None],
        *,
        clock: Clock,
    ) -> None:
        """Prepares.

        Args:
            metadata: where deletions are recorded.
            schedule: adds a task, due at once; one that is there stays as it is.
            clock: of the records.
        """
        self._metadata = metadata
        self._schedule = schedule
        self._clock = clock

    async def begin(self, broker_id: int, partitions: Sequence[TopicIdPartition]) -> None:
        """Marks partitions for a broker; when this returns they are deleted, whatever becomes of this process. Idempotent.

        Which deletions are due by now metadata says: for a while after its mark one may still be taken back.

        Raises:
            RemoteStorageUnavailableError: metadata does not answer; some may be marked.
        """
        slots = asyncio.Semaphore(_MARKS_AT_ONCE)

        async def mark(tip: TopicIdPartition) -> None:
            async with slots:
                await self._mark(broker_id, tip)

        marks = [asyncio.create_task(mark(tip)) for tip in partitions]
        try:
            await asyncio.gather(*marks)
        finally:
            for each in marks:
                each.cancel()
            await asyncio.gather(*marks, return_exceptions=True)
        await self.look()

    async def look(self) -> None:
        """Adds the tasks of all deletions that have not finished; the body of a loop.

        Raises:
            RemoteStorageUnavailableError: metadata does not answer; the next look finds the same.
        """
        found = 0
        async with closing(self._metadata.list_partition_deletions()) as listing:
            async for deletion in listing:
                self._schedule(_task(deletion.topic_id_partition))
                found += 1
        if found:
            logger.debug("partition_deletions_found", partitions=found)

    async def _mark(self, broker_id: int, tip: TopicIdPartition) -> None:
        step = RemotePartitionDeleteMetadata(
            topic_id_partition=tip,
            state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
            event_timestamp_ms=self._clock.now_ms(),
            broker_id=broker_id,
        )
        try:
            await self._metadata.put_remote_partition_delete_metadata(step)
        except InvalidStateTransitionError:
            logger.debug("partition_deletion_is_further", topic=tip.topic, partition=tip.partition)


def _task(tip: TopicIdPartition) -> TaskKey:
    return TaskKey(tip, TaskType.PARTITION_DELETION)
