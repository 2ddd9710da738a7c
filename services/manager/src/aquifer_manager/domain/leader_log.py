"""A leader's log as the manager sees it, and what must be known before its first task runs (K-3.2)."""

from typing import Final

import structlog
from aquifer_core.errors import NotLeaderError, StaleLeaderEpochError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, bound_highest_remote_offset
from aquifer_core.partition_summary import PartitionSummary
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.ports import BrokerConnections, BrokerLogs, LogDescription, LogQuery
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.streams import closing

__all__ = ["LeaderLogs", "find_highest_remote_offset", "find_log_start_offset"]

logger = structlog.get_logger(__name__)

_NOTHING_REMOTE: Final = -1


class LeaderLogs:
    """Describes the logs of leaders and makes metadata and broker agree at the start of a leader epoch."""

    def __init__(
        self,
        registry: Registry,
        brokers: BrokerConnections,
        metadata: RemoteLogMetadataManager,
        facts: PartitionFacts,
        indexes: RemoteIndexes,
    ) -> None:
        self._registry = registry
        self._brokers = brokers
        self._metadata = metadata
        self._facts = facts
        self._indexes = indexes

    def broker(self, assignment: Assignment) -> BrokerLogs:
        """The logs of the broker that an assignment works for."""
        return self._brokers.logs_at(assignment.address)

    async def describe(
        self, assignment: Assignment, *, segments_from_offset: int = 0, max_segments: int = 0
    ) -> LogDescription:
        """State of the leader's log.

        Raises:
            NotLeaderError: the broker does not host the log, or does not lead it in the assignment's epoch.
        """
        query = LogQuery(
            topic_id_partition=assignment.topic_id_partition,
            segments_from_offset=segments_from_offset,
            max_segments=max_segments,
        )
        (log,) = await self.broker(assignment).describe_logs([query])
        if log is None or not log.leader or log.leader_epoch != assignment.leader_epoch:
            raise _not_leader(assignment, log)
        return log

    async def prepare(self, assignment: Assignment, *, max_segments: int = 0) -> LogDescription:
        """The leader's log, with metadata told of the leader epoch, and the highest remote offset known here and to the broker.

        The first time in a leader epoch: fences older leaders, raises the log start to what metadata knows, and looks for the
        highest remote offset. The partition's local remote index follows in its own time.

        Args:
            assignment: for whom.
            max_segments: rolled segments to list, from the first one that is not remote.

        Raises:
            NotLeaderError: the broker does not lead the partition in the assignment's epoch.
            StaleLeaderEpochError: metadata knows a higher epoch; the partition's tasks are stopped.
        """
        work = assignment.work
        log: LogDescription | None = None
        async with work.beginning:
            if not work.announced or work.copied_offset is None:
                log = await self._begin(assignment, max_segments)
        copied = -1 if work.copied_offset is None else work.copied_offset
        if log is None or copied >= 0:
            log = await self.describe(
                assignment, segments_from_offset=copied + 1, max_segments=max_segments
            )
        if log.highest_remote_offset < copied:
            await self.tell_highest(assignment, copied)
        if work.copied_offset is not None and log.highest_remote_offset > work.copied_offset:
            log = await self._catch_up(assignment, log, max_segments)
        self.tell_index(assignment, log)
        return log

    def tell_index(self, assignment: Assignment, log: LogDescription) -> None:
        """Tells the partition's local remote index how far remote storage reaches by now."""
        copied = assignment.work.copied_offset
        if copied is not None:
            tip = assignment.topic_id_partition
            self._indexes.should_reach(tip, log.leader_epochs, log.log_start_offset, copied)

    async def _catch_up(
        self, assignment: Assignment, log: LogDescription, max_segments: int
    ) -> LogDescription:
        """The broker knows of more than was copied here: another manager may have, and local segments may be gone since."""
        work = assignment.work
        summary = await self._facts.summary(assignment.topic_id_partition)
        highest = await find_highest_remote_offset(self._metadata, log, summary)
        _same_epoch(assignment)
        if work.copied_offset is None or highest <= work.copied_offset:
            return log
        work.copied_offset = highest
        return await self.describe(
            assignment, segments_from_offset=highest + 1, max_segments=max_segments
        )

    async def tell_highest(self, assignment: Assignment, highest_remote_offset: int) -> None:
        """Tells the broker how far remote storage reaches, so that local retention may go on. Idempotent."""
        await self.broker(assignment).update_remote_log_offsets(
            assignment.topic_id_partition,
            assignment.leader_epoch,
            highest_remote_offset=highest_remote_offset,
        )

    async def highest_remote_end(self, assignment: Assignment) -> int:
        """Last offset of all segments that metadata lists now, whoever copies them; -1: none, or metadata has no summaries."""
        summary = await self._facts.summary(assignment.topic_id_partition)
        return -1 if summary is None else summary.highest_end_offset

    async def _begin(self, assignment: Assignment, max_segments: int) -> LogDescription | None:
        """Answers the log as it was before, from offset 0 on; None when it was changed here."""
        work, tip = assignment.work, assignment.topic_id_partition
        log = await self.describe(assignment, max_segments=max_segments)
        await self._facts.announce(tip, assignment.leader_epoch)
        _same_epoch(assignment)
        work.announced = True
        summary = await self._facts.summary(tip)
        log_start = await find_log_start_offset(self._metadata, log, summary)
        raises = log_start > log.log_start_offset
        if raises:
            await self.raise_log_start(assignment, log_start)
        if summary is None or summary.unfinished_segments:
            await self._adopt_abandoned(assignment)
        highest = await find_highest_remote_offset(self._metadata, log, summary)
        _same_epoch(assignment)
        if work.copied_offset is None:
            work.copied_offset = highest
        if summary is not None and summary.earliest_log_offset is not None:
            work.recorded_log_start = max(work.recorded_log_start, summary.earliest_log_offset)
        return None if raises else log

    async def _adopt_abandoned(self, assignment: Assignment) -> None:
        """Has copies that somebody else began, and that nobody can have finished by now, taken back.

        Whoever began them for an older leader epoch is fenced. One begun in this epoch belongs to a manager that is gone, or
        that works here by mistake: metadata refuses its commit once the copy is marked, and it cleans up after itself.
        """
        work = assignment.work
        async with closing(
            self._metadata.list_remote_log_segments(assignment.topic_id_partition)
        ) as listing:
            abandoned = [
                segment
                async for segment in listing
                if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
                and segment.segment_id.id not in work.in_progress
            ]
        _same_epoch(assignment)
        for segment in abandoned:
            logger.info(
                "abandoned_copy_found",
                topic=segment.topic_id_partition.topic,
                partition=segment.topic_id_partition.partition,
                segment_id=str(segment.segment_id.id),
                start_offset=segment.start_offset,
            )
            work.in_progress.add(segment.segment_id.id)
            work.begun[segment.segment_id.id] = segment
            work.failed[segment.segment_id.id] = segment

    async def raise_log_start(self, assignment: Assignment, log_start_offset: int) -> None:
        """Raises the log start in metadata, where followers find it, then at the broker. Idempotent."""
        tip = assignment.topic_id_partition
        await self.record_log_start(assignment, log_start_offset)
        await self.broker(assignment).update_remote_log_offsets(
            tip, assignment.leader_epoch, log_start_offset=log_start_offset
        )

    async def record_log_start(self, assignment: Assignment, log_start_offset: int) -> None:
        """Raises the log start in metadata, where followers find it. Idempotent."""
        work = assignment.work
        if log_start_offset <= work.recorded_log_start:
            return
        if log_start_offset <= 0 and work.copied_offset == _NOTHING_REMOTE:
            # No record and a record of 0 mean the same to everybody while nothing is remote.
            return
        await self._metadata.update_earliest_log_offset(
            assignment.topic_id_partition, log_start_offset, assignment.leader_epoch
        )
        _same_epoch(assignment)
        work.recorded_log_start = log_start_offset

    def fence(self, assignment: Assignment, error: StaleLeaderEpochError) -> bool:
        """Metadata knows a higher leader epoch: the partition's leader tasks end until it is announced again."""
        fenced = self._registry.fence(assignment)
        if fenced:
            logger.warning(
                "leader_fenced",
                topic=assignment.topic_id_partition.topic,
                partition=assignment.topic_id_partition.partition,
                broker_id=assignment.broker_id,
                leader_epoch=assignment.leader_epoch,
                error=str(error),
            )
        return fenced


async def find_log_start_offset(
    metadata: RemoteLogMetadataManager,
    log: LogDescription,
    summary: PartitionSummary | None = None,
) -> int:
    """Where the partition starts: what a leader recorded, else the first remote segment of the lineage, else the local log.

    Never below the log start that the broker knows. Source: `RLMCopyTask.findLogStartOffset`.
    """
    tip = log.topic_id_partition
    if summary is None:
        recorded = await metadata.earliest_log_offset(tip)
    else:
        recorded = summary.earliest_log_offset
    if recorded is not None:
        return max(recorded, log.log_start_offset)
    first = None
    if summary is None or summary.segments:
        first = await _first_remote_offset(metadata, tip, log.lineage())
    return max(log.local_log_start_offset if first is None else first, log.log_start_offset)


async def find_highest_remote_offset(
    metadata: RemoteLogMetadataManager,
    log: LogDescription,
    summary: PartitionSummary | None = None,
) -> int:
    """The highest finished offset that the leader's lineage still holds; -1 for none.

    From the latest epoch downward the first one with a copy, bounded by the epoch's end: after an unclean election it may have
    been cut. Source: `RLMCopyTask.findHighestRemoteOffset`.
    """
    cache = LeaderEpochCache(log.leader_epochs)
    for entry in reversed(cache.entries):
        if summary is None:
            highest = await metadata.highest_offset_for_epoch(log.topic_id_partition, entry.epoch)
        else:
            highest = summary.highest_offsets.get(entry.epoch)
        if highest is not None:
            return bound_highest_remote_offset(cache, entry.epoch, highest, log.log_end_offset)
    return -1


async def _first_remote_offset(
    metadata: RemoteLogMetadataManager, tip: TopicIdPartition, lineage: dict[int, int]
) -> int | None:
    async with closing(metadata.list_remote_log_segments(tip)) as listing:
        async for segment in listing:
            if (
                segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                and segment.segment_leader_epochs.keys() & lineage.keys()
            ):
                return segment.start_offset
    return None


def _same_epoch(assignment: Assignment) -> None:
    """What was found out for one leader epoch must not be remembered for the next one."""
    if assignment.work.leader_epoch != assignment.leader_epoch:
        raise NotLeaderError(
            f"{assignment.topic_id_partition}: leadership moved on from epoch "
            f"{assignment.leader_epoch} to {assignment.work.leader_epoch} during the run"
        )


def _not_leader(assignment: Assignment, log: LogDescription | None) -> NotLeaderError:
    tip = assignment.topic_id_partition
    if log is None:
        found = "does not host it"
    else:
        role = "leads" if log.leader else "follows"
        found = f"{role} it in epoch {log.leader_epoch}"
    return NotLeaderError(
        f"{tip}: broker {assignment.broker_id} was announced as leader in epoch "
        f"{assignment.leader_epoch}, but {found}",
        metadata={"topicIdPartition": str(tip)},
    )
