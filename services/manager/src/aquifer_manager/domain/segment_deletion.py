"""Deletes one remote segment: metadata first, then the objects, then metadata again (K-3.3)."""

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.ports import Telemetry

__all__ = ["SegmentDeletion"]

logger = structlog.get_logger(__name__)


class SegmentDeletion:
    """Deletes segments. Idempotent at every step, so a deletion that failed is simply tried again."""

    def __init__(
        self,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        failures: DeletionFailures,
        *,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._storage = storage
        self._metadata = metadata
        self._failures = failures
        self._clock = clock
        self._telemetry = telemetry

    async def delete(
        self,
        segment: RemoteLogSegmentMetadata,
        *,
        reason: str,
        broker_id: int,
        leader_epoch: int | None,
    ) -> None:
        """Marks the segment, deletes its objects, and unmarks it.

        Args:
            segment: in any state but DELETE_SEGMENT_FINISHED.
            reason: for the history.
            broker_id: for whom.
            leader_epoch: fences; None for deletions that no leader decides.

        Raises:
            AquiferError: a step failed; those before it hold.
        """
        await self.mark(segment, reason=reason, broker_id=broker_id, leader_epoch=leader_epoch)
        await self.delete_objects(segment)
        await self.finish(segment, reason=reason, broker_id=broker_id, leader_epoch=leader_epoch)

    def last_failure_ms(self, segment: RemoteLogSegmentMetadata) -> int:
        """When the deletion of a segment failed last here, by the wall clock; 0: it did not. Those go last, for the others' sake."""
        return self._failures.last_failure_ms(segment)

    async def mark(
        self,
        segment: RemoteLogSegmentMetadata,
        *,
        reason: str,
        broker_id: int,
        leader_epoch: int | None,
    ) -> None:
        """Moves the segment to DELETE_SEGMENT_STARTED: from here on expirations delete it until it is gone."""
        state = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        await self._move(segment, state, reason, broker_id, leader_epoch)

    async def delete_objects(self, segment: RemoteLogSegmentMetadata) -> None:
        """Deletes the objects of a marked segment."""
        topic = segment.topic_id_partition.topic
        self._telemetry.count("delete.requests", 1, topic)
        try:
            await self._storage.delete_log_segment_data(segment)
        except AquiferError as error:
            self._telemetry.count("delete.errors", 1, topic)
            self._failures.failed(segment, error)
            raise

    async def finish(
        self,
        segment: RemoteLogSegmentMetadata,
        *,
        reason: str,
        broker_id: int,
        leader_epoch: int | None,
    ) -> None:
        """Moves a segment without objects to DELETE_SEGMENT_FINISHED."""
        state = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        await self._move(segment, state, reason, broker_id, leader_epoch)
        topic = segment.topic_id_partition.topic
        self._telemetry.count("delete.bytes", segment.segment_size_bytes, topic)
        logger.info(
            "segment_deleted",
            topic=topic,
            partition=segment.topic_id_partition.partition,
            segment_id=str(segment.segment_id.id),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            reason=reason,
        )
        self._failures.deleted(segment)

    async def _move(
        self,
        segment: RemoteLogSegmentMetadata,
        state: RemoteLogSegmentState,
        reason: str,
        broker_id: int,
        leader_epoch: int | None,
    ) -> None:
        update = RemoteLogSegmentMetadataUpdate(
            segment_id=segment.segment_id,
            event_timestamp_ms=self._clock.now_ms(),
            state=state,
            broker_id=broker_id,
            custom_metadata=segment.custom_metadata,
            reason=reason,
        )
        await self._metadata.update_remote_log_segment_metadata(update, leader_epoch=leader_epoch)
