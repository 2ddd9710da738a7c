"""What a manager may ask of this broker's logs, fenced by the leader epoch."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    InvalidRequestError,
    NotLeaderError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata

from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.log.log_values import LogOffsets, RolledSegment
from aquifer_broker.tiering.segment_upload import upload_segment

__all__ = ["BrokerLogs", "LogDescription", "LogQuery"]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Asks for one log; rolled segments that end at or after an offset are listed, at most so many."""

    topic_id_partition: TopicIdPartition
    segments_from_offset: int
    max_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """State of one log."""

    topic_id_partition: TopicIdPartition
    is_leader: bool
    leader_epoch: int
    offsets: LogOffsets
    leader_epochs: Sequence[LeaderEpochEntry]
    segments: Sequence[RolledSegment]
    local_only_bytes: int
    local_bytes: int
    local_segments: int


class BrokerLogs:
    """The logs of this broker. Every method with a leader epoch refuses one that is not the current one."""

    def __init__(
        self,
        hosted: Callable[[TopicIdPartition], HostedPartition | None],
        storage: RemoteStorageManager,
    ) -> None:
        """Prepares.

        Args:
            hosted: The partition with exactly this topic id, if it is hosted here.
            storage: Where segments are copied to.
        """
        self._hosted = hosted
        self._storage = storage

    def describe(self, query: LogQuery) -> LogDescription | None:
        """State of a log; None when it is not hosted here, or cannot be served now."""
        hosted = self._hosted(query.topic_id_partition)
        if hosted is None or hosted.log.lacks_leader_epochs:
            return None
        try:
            return _describe(hosted, query)
        except AquiferError as error:
            logger.warning(
                "log_not_described", partition=str(query.topic_id_partition), error=error.message
            )
            return None

    async def copy_segment(
        self, metadata: RemoteLogSegmentMetadata, leader_epoch: int
    ) -> AsyncGenerator[int | CopyResult, None]:
        """Uploads a rolled segment: bytes sent so far, then the result. A change of leader does not stop it (SR-22).

        Raises:
            NotLeaderError, StaleLeaderEpochError: Not the leader, or not in this epoch.
            RemoteResourceNotFoundError: Not hosted, or no such rolled segment.
            InvalidRequestError: The metadata does not describe the local segment.
        """
        log = self._leader(metadata.topic_id_partition, leader_epoch).log
        for segment in log.rolled_segments(metadata.start_offset, limit=1):
            _check_same(segment, metadata)
        async with (
            log.segment_data(metadata.start_offset) as data,
            aclosing(upload_segment(self._storage, metadata, data)) as steps,
        ):
            async for step in steps:
                yield step

    async def update_remote_offsets(
        self,
        topic_id_partition: TopicIdPartition,
        leader_epoch: int,
        *,
        log_start_offset: int | None,
        highest_remote_offset: int | None,
    ) -> int:
        """Takes over how far remote storage reaches, and lets local retention act on it; returns the log start.

        Lower values change nothing. Followers are told as well.

        Raises:
            StaleLeaderEpochError: Another epoch is current.
            RemoteResourceNotFoundError: Not hosted.
            OffsetOutOfRangeError: The log start would pass the high watermark.
        """
        log = self._current(topic_id_partition, leader_epoch).log
        if log_start_offset is not None:
            await log.increase_log_start_offset(log_start_offset, reason="remote retention")
        if highest_remote_offset is not None and log.tiering_enabled:
            # What is remote is below the last stable offset; a higher claim is of another lineage.
            bounded = min(highest_remote_offset, log.last_stable_offset - 1)
            log.update_highest_offset_in_remote_storage(bounded)
        await log.apply_local_retention()
        return log.log_start_offset

    async def roll_segment(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """Rolls the active segment unless it is empty; returns the base offset of the active one. Idempotent.

        Raises:
            NotLeaderError, StaleLeaderEpochError: Not the leader, or not in this epoch.
            RemoteResourceNotFoundError: Not hosted.
        """
        return await self._leader(topic_id_partition, leader_epoch).log.roll_active()

    def _current(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> HostedPartition:
        hosted = self._hosted(topic_id_partition)
        if hosted is None:
            raise RemoteResourceNotFoundError(
                f"{topic_id_partition} is not on this broker",
                reason=ErrorReason.PARTITION_NOT_FOUND,
            )
        if hosted.leader_epoch != leader_epoch:
            raise StaleLeaderEpochError(
                f"leader epoch {leader_epoch} of {topic_id_partition} is not the current one, {hosted.leader_epoch}",
                metadata={"given": str(leader_epoch), "current": str(hosted.leader_epoch)},
            )
        return hosted

    def _leader(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> HostedPartition:
        hosted = self._current(topic_id_partition, leader_epoch)
        if not hosted.is_leader:
            raise NotLeaderError(f"this broker follows {topic_id_partition}")
        return hosted


def _describe(hosted: HostedPartition, query: LogQuery) -> LogDescription:
    log = hosted.log
    segments: Sequence[RolledSegment] = ()
    if query.max_segments > 0:
        segments = log.copyable_segments(query.segments_from_offset, limit=query.max_segments)
    return LogDescription(
        topic_id_partition=query.topic_id_partition,
        is_leader=hosted.is_leader,
        leader_epoch=hosted.leader_epoch,
        offsets=log.offsets,
        leader_epochs=log.leader_epochs.entries,
        segments=segments,
        local_only_bytes=log.local_only_bytes,
        local_bytes=log.size_bytes,
        local_segments=log.segment_count,
    )


def _check_same(segment: RolledSegment, metadata: RemoteLogSegmentMetadata) -> None:
    wanted = (metadata.start_offset, metadata.end_offset, metadata.segment_size_bytes)
    found = (segment.base_offset, segment.end_offset, segment.size_bytes)
    if segment.base_offset == metadata.start_offset and found != wanted:
        raise InvalidRequestError(
            f"segment {metadata.segment_id.id} is described as (start, end, bytes) {wanted}, the local one is {found}",
            reason=ErrorReason.INVALID_SEGMENT,
        )
