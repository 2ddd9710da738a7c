"""Deletes all remote data of a partition: a job that goes on until nothing is left (T20, K-3.12).

Every step is recorded in metadata before it is taken, so the job can be begun again at any point, by any manager, and by several
at once.
"""

from typing import Final

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
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, TaskAction, TaskKey, TaskOutcome

__all__ = ["PartitionDeletionTask"]

logger = structlog.get_logger(__name__)

_REASON: Final = "PARTITION_DELETED"
_NOBODY: Final = -1
_State = RemotePartitionDeleteState
_SegmentState = RemoteLogSegmentState


class PartitionDeletionTask:
    """STARTED, every segment deleted, FINISHED, for a partition that is marked. Retried for ever."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        *,
        clock: Clock,
        telemetry: Telemetry,
        copy_abandoned_after_ms: int,
        segments_per_run: int = 500,
    ) -> None:
        """Prepares.

        Args:
            metadata: where the deletion is recorded.
            deletion: deletes single segments.
            clock: of the records, and of the age of copies.
            telemetry: traces runs.
            copy_abandoned_after_ms: a copy begun longer ago writes no more objects.
            segments_per_run: after these the task goes to the end of the queue, due at once.
        """
        self._metadata = metadata
        self._deletion = deletion
        self._clock = clock
        self._telemetry = telemetry
        self._copy_abandoned_after_ms = copy_abandoned_after_ms
        self._segments_per_run = segments_per_run

    async def run(self, key: TaskKey) -> TaskOutcome:
        """One run: at most `segments_per_run` segments. Nothing is deleted of a partition that is not marked, or not any more.

        Raises:
            AquiferError: a step failed, or some segments could not be deleted; the next run goes on.
        """
        tip = key.topic_id_partition
        with self._telemetry.span("delete partition", tip, {}):
            if not await self._start(tip):
                return TaskOutcome(finished=True)
            segments, complete = await self._list(tip)
            actions, waiting = await self._delete_all(segments, complete=complete)
            if waiting:
                logger.info("partition_deletion_waits_for_copies", topic=tip.topic, copies=waiting)
            if waiting or not complete:
                return TaskOutcome(actions=actions, more_work=bool(actions) and not complete)
            await self._record(tip, _State.DELETE_PARTITION_FINISHED)
        logger.info("partition_deleted", topic=tip.topic, partition=tip.partition)
        return TaskOutcome(actions=actions, finished=True)

    async def _start(self, tip: TopicIdPartition) -> bool:
        """Whether there is something to do: false when the deletion has finished, or was taken back."""
        try:
            await self._record(tip, _State.DELETE_PARTITION_STARTED)
        except InvalidStateTransitionError as error:
            if error.metadata.get("from") not in (_State.DELETE_PARTITION_FINISHED.name, ""):
                raise
            return False
        return True

    async def _record(self, tip: TopicIdPartition, state: RemotePartitionDeleteState) -> None:
        await self._metadata.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                topic_id_partition=tip,
                state=state,
                event_timestamp_ms=self._clock.now_ms(),
                broker_id=_NOBODY,
            )
        )

    async def _list(self, tip: TopicIdPartition) -> tuple[list[RemoteLogSegmentMetadata], bool]:
        """Segments to delete, and whether these are all. Those that just failed come last, however many they are."""
        segments: list[RemoteLogSegmentMetadata] = []
        failed: list[RemoteLogSegmentMetadata] = []
        most = self._segments_per_run
        try:
            async with closing(self._metadata.list_remote_log_segments(tip)) as listing:
                async for segment in listing:
                    if self._deletion.last_failure_ms(segment):
                        failed.append(segment)
                    elif len(segments) == most:
                        return segments, False
                    else:
                        segments.append(segment)
        except RemoteResourceNotFoundError as error:
            if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
                raise
        segments += sorted(failed, key=self._deletion.last_failure_ms)
        return segments[:most], len(segments) <= most

    async def _delete_all(
        self, segments: list[RemoteLogSegmentMetadata], *, complete: bool
    ) -> tuple[tuple[TaskAction, ...], int]:
        """What was deleted, and how many copies have to be waited for."""
        actions: list[TaskAction] = []
        failures: list[AquiferError] = []
        waiting = 0
        for segment in segments:
            try:
                gone = await self._delete(segment)
            except AquiferError as error:
                failures.append(error)
                _log_failure(segment, error)
                continue
            if gone:
                action = ActionKind.DELETED
                actions.append(TaskAction(segment=segment, action=action, reason=_REASON))
            else:
                waiting += 1
        if failures and (complete or not actions):
            raise failures[0]
        return tuple(actions), waiting

    async def _delete(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Deletes a segment. False: its objects are gone, and its entry stays until its upload has surely ended."""
        broker_id = segment.broker_id
        if segment.state is not _SegmentState.DELETE_SEGMENT_STARTED:
            try:
                await self._deletion.mark(
                    segment, reason=_REASON, broker_id=broker_id, leader_epoch=None
                )
            except InvalidStateTransitionError:
                # Another manager was quicker: the objects were gone before the entry.
                return True
        await self._deletion.delete_objects(segment)
        if await self._may_be_written(segment):
            return False
        await self._deletion.finish(segment, reason=_REASON, broker_id=broker_id, leader_epoch=None)
        return True

    async def _may_be_written(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether an upload may still write objects of a marked segment.

        Its manager deletes them and ends the entry as soon as it learns that it cannot finish the copy any more. That manager may
        have died, so the objects are deleted here as well, again and again until the copy is too old.
        """
        if segment.state is _SegmentState.COPY_SEGMENT_FINISHED:
            return False
        history = await self._metadata.segment_history(segment.segment_id)
        if any(event.to_state is _SegmentState.COPY_SEGMENT_FINISHED for event in history):
            return False
        begun_ms = [
            event.timestamp_ms
            for event in history
            if event.to_state is _SegmentState.COPY_SEGMENT_STARTED
        ]
        return self._clock.now_ms() - max(begun_ms, default=0) < self._copy_abandoned_after_ms


def _log_failure(segment: RemoteLogSegmentMetadata, error: AquiferError) -> None:
    logger.warning(
        "segment_deletion_failed",
        topic=segment.topic_id_partition.topic,
        partition=segment.topic_id_partition.partition,
        segment_id=str(segment.segment_id.id),
        why=_REASON,
        reason=error.reason.value,
        error=str(error),
    )
