"""What a scrub may repair: it removes proven orphans and copies a missing segment again while a broker has it."""

from collections.abc import Mapping
from dataclasses import replace

import structlog
from aquifer_core.errors import AquiferError, RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.copy_candidates import copy_metadata
from aquifer_manager.domain.coverage import Coverage
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.ports import LogDescription, RolledSegment
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.segment_pages import listed_segments
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, Remedy, TaskAction

__all__ = ["ScrubHealing"]

logger = structlog.get_logger(__name__)

_REASON = "scrub: not in the store"


class ScrubHealing:
    """Remedies for findings. Each looks at the facts again before it acts."""

    def __init__(
        self,
        registry: Registry,
        logs: LeaderLogs,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        *,
        copies: SegmentCopy,
        deletion: SegmentDeletion,
        quota: ByteQuota,
        clock: Clock,
    ) -> None:
        """Prepares.

        Args:
            registry: says who leads.
            logs: describes the leader's log.
            storage: where orphans are removed.
            metadata: where segments are looked up again.
            copies: copies single segments.
            deletion: takes the entry of a lost copy out of metadata.
            quota: of copied bytes per second.
            clock: wall clock.
        """
        self._registry = registry
        self._logs = logs
        self._storage = storage
        self._metadata = metadata
        self._copies = copies
        self._deletion = deletion
        self._quota = quota
        self._clock = clock

    async def leader_log(self, tip: TopicIdPartition) -> LogDescription | None:
        """The leader's log; None when no leader is registered or it does not answer."""
        return await self._described(tip, from_offset=0, max_segments=0)

    async def _described(
        self, tip: TopicIdPartition, *, from_offset: int, max_segments: int
    ) -> LogDescription | None:
        try:
            assignment = self._registry.leader(tip)
            if assignment is None:
                return None
            return await self._logs.describe(
                assignment, segments_from_offset=from_offset, max_segments=max_segments
            )
        except AquiferError as error:
            logger.info("leader_not_asked", topic=tip.topic, partition=tip.partition, error=error)
            return None

    async def advise(self, finding: TaskAction, coverage: Coverage) -> TaskAction:
        """The finding with what can be done about it.

        Args:
            finding: missing or corrupt.
            coverage: of its segment by those that are sound.
        """
        if finding.action is not ActionKind.MISSING:
            return finding
        segment = finding.segment
        if not coverage.left(None, 0):
            return replace(finding, remedy=Remedy.REMOVE, detail="other copies hold its records")
        log = await self._described(
            segment.topic_id_partition, from_offset=segment.start_offset, max_segments=1
        )
        if log is None:
            return replace(finding, detail="its leader is not registered here or does not answer")
        if _local_segment(log, segment) is None:
            return replace(finding, detail="its leader does not have the same segment locally")
        return replace(finding, remedy=Remedy.COPY_AGAIN)

    async def remove(self, finding: TaskAction) -> TaskAction:
        """Removes the objects of a proven orphan. Idempotent.

        Raises:
            AquiferError: the store did not delete them.
        """
        segment = finding.segment
        await self._storage.delete_log_segment_data(segment)
        self._log("orphan_removed", segment, finding.reason)
        return replace(finding, healed=True)

    async def heal_missing(self, finding: TaskAction) -> TaskAction:
        """Copies a missing segment again under a new id, then takes the lost copy out of metadata.

        Raises:
            AquiferError: a step failed; a copy that was made stays, and the next scrub finds what is left to do.
        """
        segment = finding.segment
        tip = segment.topic_id_partition
        assignment = self._registry.leader(tip)
        if assignment is None or not await self._is_still_missing(segment):
            return replace(finding, remedy=Remedy.NONE, detail="it is not missing any more")
        if finding.remedy is Remedy.COPY_AGAIN and not await self._copy_again(assignment, segment):
            return replace(finding, remedy=Remedy.NONE, detail="its leader lost it meanwhile")
        await self._deletion.delete(
            segment,
            reason=_REASON,
            broker_id=assignment.broker_id,
            leader_epoch=assignment.leader_epoch,
        )
        return replace(finding, healed=True)

    async def _copy_again(self, assignment: Assignment, segment: RemoteLogSegmentMetadata) -> bool:
        log = await self._logs.prepare(assignment)
        log = await self._logs.describe(
            assignment, segments_from_offset=segment.start_offset, max_segments=1
        )
        local = _local_segment(log, segment)
        if local is None:
            return False
        await self._quota.reserve(local.size_bytes)
        copy = copy_metadata(
            log, local, broker_id=assignment.broker_id, now_ms=self._clock.now_ms()
        )
        await self._copies.copy(assignment, self._logs.broker(assignment), copy)
        self._log("missing_segment_copied_again", segment, str(copy.segment_id.id))
        return True

    async def _is_still_missing(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether metadata still has it finished, and the store still does not have it."""
        if not await self._is_finished(segment):
            return False
        try:
            await self._storage.describe_segment(segment)
        except RemoteResourceNotFoundError:
            return True
        return False

    async def _is_finished(self, segment: RemoteLogSegmentMetadata) -> bool:
        tip, start_offset = segment.topic_id_partition, segment.start_offset
        async with closing(listed_segments(self._metadata, tip, start_offset)) as listed:
            async for each in listed:
                if each.segment_id == segment.segment_id:
                    return each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                if each.start_offset > start_offset:
                    break
        return False

    def _log(self, event: str, segment: RemoteLogSegmentMetadata, why: str) -> None:
        logger.warning(
            event,
            topic=segment.topic_id_partition.topic,
            partition=segment.topic_id_partition.partition,
            segment_id=str(segment.segment_id.id),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            why=why,
        )


def _local_segment(log: LogDescription, segment: RemoteLogSegmentMetadata) -> RolledSegment | None:
    """The local segment with the same records: same offsets, same size, same leader epochs."""
    for local in log.segments:
        if (local.base_offset, local.end_offset, local.size_bytes) == (
            segment.start_offset,
            segment.end_offset,
            segment.segment_size_bytes,
        ):
            epochs = log.epoch_cache().entries_in_range(local.base_offset, local.end_offset + 1)
            lineage = {entry.epoch: entry.start_offset for entry in epochs}
            start = log.log_start_offset
            same = _from(start, lineage) == _from(start, segment.segment_leader_epochs)
            return local if same else None
    return None


def _from(log_start_offset: int, epochs: Mapping[int, int]) -> dict[int, int]:
    """Leader epochs with their first offsets at or above the log start; leaders forget those of deleted records."""
    reached = [start for start in epochs.values() if start <= log_start_offset]
    floor = max(reached, default=0)
    return {
        epoch: max(start, log_start_offset) for epoch, start in epochs.items() if start >= floor
    }
