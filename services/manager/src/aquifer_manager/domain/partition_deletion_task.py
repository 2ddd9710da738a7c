"""Deletes all remote data of a partition: a job that goes on until nothing is left (T20, K-3.12).

Every step is recorded in metadata before it is taken, so the job can be begun again at any point: by the next run after a failure,
and by another manager when a broker repeats `StopPartitions`. Which partitions are being deleted is written to the job journal
before `StopPartitions` is answered, so that a manager that restarts resumes by itself.
"""

from typing import Final, Protocol

import structlog
from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    InvalidStateTransitionError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata
from aquifer_core.state import RemotePartitionDeleteState

from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, TaskAction, TaskKey, TaskOutcome

__all__ = ["DeletionJournal", "PartitionDeletionTask"]

logger = structlog.get_logger(__name__)

_REASON: Final = "PARTITION_DELETED"
_State = RemotePartitionDeleteState


class DeletionJournal(Protocol):
    """Which partitions are being deleted, kept across restarts."""

    def begun(self) -> dict[TopicIdPartition, int]:
        """Partitions whose deletion has not finished -> the broker it was asked by."""
        ...

    def begin(self, partitions: dict[TopicIdPartition, int]) -> None:
        """Adds partitions; durable when this returns. Idempotent."""
        ...

    def end(self, tip: TopicIdPartition) -> None:
        """Removes a partition. Idempotent."""
        ...


class PartitionDeletionTask:
    """MARKED, STARTED, every segment deleted, FINISHED. Retried for ever."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        journal: DeletionJournal,
        *,
        clock: Clock,
        telemetry: Telemetry,
        segments_per_run: int = 500,
    ) -> None:
        self._metadata = metadata
        self._deletion = deletion
        self._journal = journal
        self._clock = clock
        self._telemetry = telemetry
        self._segments_per_run = segments_per_run

    async def run(self, key: TaskKey) -> TaskOutcome:
        """One run: at most `segments_per_run` segments.

        Raises:
            AquiferError: a step failed, or some segments could not be deleted; the next run goes on.
        """
        tip = key.topic_id_partition
        broker_id = self._journal.begun().get(tip, -1)
        with self._telemetry.span("delete partition", tip, {}):
            await self._record(tip, _State.DELETE_PARTITION_MARKED, broker_id)
            await self._record(tip, _State.DELETE_PARTITION_STARTED, broker_id)
            segments, complete = await self._list(tip)
            actions = await self._delete_all(segments, broker_id)
            if not complete:
                return TaskOutcome(actions=actions, more_work=True)
            await self._record(tip, _State.DELETE_PARTITION_FINISHED, broker_id)
            self._journal.end(tip)
        logger.info("partition_deleted", topic=tip.topic, partition=tip.partition)
        return TaskOutcome(actions=actions, finished=True)

    async def _record(
        self, tip: TopicIdPartition, state: RemotePartitionDeleteState, broker_id: int
    ) -> None:
        """Records a step; one that is already behind is fine."""
        step = RemotePartitionDeleteMetadata(
            topic_id_partition=tip,
            state=state,
            event_timestamp_ms=self._clock.now_ms(),
            broker_id=broker_id,
        )
        try:
            await self._metadata.put_remote_partition_delete_metadata(step)
        except InvalidStateTransitionError:
            if state is _State.DELETE_PARTITION_FINISHED:
                raise
            logger.debug("partition_deletion_is_further", state=state.name)

    async def _list(self, tip: TopicIdPartition) -> tuple[list[RemoteLogSegmentMetadata], bool]:
        """Segments to delete, and whether these are all."""
        segments: list[RemoteLogSegmentMetadata] = []
        try:
            async with closing(self._metadata.list_remote_log_segments(tip)) as listing:
                async for segment in listing:
                    if len(segments) == self._segments_per_run:
                        return segments, False
                    segments.append(segment)
        except RemoteResourceNotFoundError as error:
            if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
                raise
        return segments, True

    async def _delete_all(
        self, segments: list[RemoteLogSegmentMetadata], broker_id: int
    ) -> tuple[TaskAction, ...]:
        actions: list[TaskAction] = []
        failures: list[AquiferError] = []
        for segment in segments:
            try:
                await self._deletion.delete(
                    segment, reason=_REASON, broker_id=broker_id, leader_epoch=None
                )
            except AquiferError as error:
                failures.append(error)
                logger.warning(
                    "segment_deletion_failed",
                    topic=segment.topic_id_partition.topic,
                    partition=segment.topic_id_partition.partition,
                    segment_id=str(segment.segment_id.id),
                    why=_REASON,
                    reason=error.reason.value,
                    error=str(error),
                )
            else:
                actions.append(
                    TaskAction(segment=segment, action=ActionKind.DELETED, reason=_REASON)
                )
        if failures:
            raise failures[0]
        return tuple(actions)
