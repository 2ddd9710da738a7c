"""The RemoteLogMetadataManager on PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from aquifer_core.errors import UnavailableError
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary
from aquifer_core.ports import (
    Clock,
    PartitionChange,
    RemoteLogMetadataManager,
    RetentionPlan,
    RetentionPolicy,
    SegmentEvent,
)
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.segment_run import SegmentRun
from aquifer_core.state import RemotePartitionDeleteState
from aquifer_core.task_pauses import PauseTarget, TaskPause

from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_deletions import RemoteLogDeletions
from aquifer_metadata.adapters.postgres.remote_log_forgetting import RemoteLogForgetting
from aquifer_metadata.adapters.postgres.remote_log_lookups import RemoteLogLookups
from aquifer_metadata.adapters.postgres.remote_log_past import RemoteLogPast
from aquifer_metadata.adapters.postgres.remote_log_pruning import RemoteLogPruning
from aquifer_metadata.adapters.postgres.remote_log_reads import RemoteLogReads
from aquifer_metadata.adapters.postgres.remote_log_retention import RemoteLogRetention
from aquifer_metadata.adapters.postgres.remote_log_runs import RemoteLogRuns
from aquifer_metadata.adapters.postgres.remote_log_summaries import RemoteLogSummaries
from aquifer_metadata.adapters.postgres.remote_log_watch import RemoteLogWatch
from aquifer_metadata.adapters.postgres.remote_log_writes import RemoteLogWrites
from aquifer_metadata.adapters.postgres.task_pauses import SqlTaskPauses

_DAY_MS = 24 * 3600 * 1000


class PostgresRemoteLogMetadataManager(RemoteLogMetadataManager):
    """Facts about remote segments in PostgreSQL; nothing is kept in the process.

    Any number of processes may stand on one database. The database and the signal are the caller's to close.
    """

    def __init__(
        self,
        database: Database,
        signal: ChangeSignal,
        *,
        clock: Clock,
        trace_id: Callable[[], str],
        page_size: int = 500,
        watch_poll_s: float = 1.0,
        forget_batch: int = 1000,
        history_ms: int = 90 * _DAY_MS,
        prune_batch: int = 1000,
        undelete_grace_ms: int = 0,
    ) -> None:
        """Prepares the manager.

        Args:
            database: with the schema of this service.
            signal: wakes watches, here and in other processes.
            clock: of the history.
            trace_id: trace of the work at hand, for the history; empty for none.
            page_size: segments read at once.
            watch_poll_s: how often watches look for changes nobody notified them of.
            forget_batch: segments forgotten in one transaction.
            history_ms: age at which changes may leave the history.
            prune_batch: changes looked at in one transaction for that.
            undelete_grace_ms: how long a partition stays marked before anybody is told to delete it.
        """
        self._database = database
        self._lookups = RemoteLogLookups(database)
        self._reads = RemoteLogReads(database, page_size=page_size)
        self._runs = RemoteLogRuns(database)
        self._retention = RemoteLogRetention(database)
        self._summaries = RemoteLogSummaries(database)
        self._writes = RemoteLogWrites(database, signal, clock, trace_id)
        self._deletions = RemoteLogDeletions(
            database, clock, page_size=page_size, undelete_grace_ms=undelete_grace_ms
        )
        self._watch = RemoteLogWatch(database, signal, poll_s=watch_poll_s, page_size=page_size)
        self.forgetting = RemoteLogForgetting(database, clock, batch_size=forget_batch)
        self.pruning = RemoteLogPruning(database, clock, kept_ms=history_ms, batch_size=prune_batch)
        self.past = RemoteLogPast(database)
        self._pauses = SqlTaskPauses(database, clock, page_size=page_size)

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Needs no properties: the database is given."""

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        await self._writes.add(metadata, leader_epoch)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        await self._writes.update(update, leader_epoch)

    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        return await self._lookups.find(topic_id_partition, leader_epoch, offset)

    async def highest_offset_for_epoch(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int
    ) -> int | None:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.highest_offset(topic_id_partition, leader_epoch)

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata
    ) -> None:
        """See `RemoteLogMetadataManager`; with FINISHED returns when the rows are gone, and a repeat goes on."""
        await self._writes.move_deletion(metadata)
        if metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            await self.forgetting.forget(metadata.topic_id_partition)
            await self._pauses.resume([metadata.topic_id_partition])

    def list_partition_deletions(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """See `RemoteLogMetadataManager`."""
        return self._deletions.unfinished()

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `RemoteLogMetadataManager`."""
        return self._reads.segments(topic_id_partition, leader_epoch)

    def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `SegmentListings`."""
        return self._reads.segments(topic_id_partition, from_offset=start_offset)

    async def remote_log_size(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.size(topic_id_partition, leader_epoch)

    async def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.next_with_txn_index(topic_id_partition, leader_epoch, offset)

    async def segment_run(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int, max_bytes: int
    ) -> SegmentRun:
        """See `SegmentRuns`."""
        return await self._runs.find(topic_id_partition, leader_epoch, offset, max_bytes)

    async def find_segment_for_timestamp(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        min_end_offset: int = 0,
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.by_timestamp(
            topic_id_partition, lineage, timestamp_ms, min_end_offset
        )

    async def list_retention_candidates(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """See `RemoteLogMetadataManager`."""
        return await self._retention.plan(topic_id_partition, lineage, policy, now_ms)

    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """See `PartitionSummaries`."""
        return await self._summaries.of(partitions)

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> None:
        """See `TaskPauses`."""
        await self._pauses.pause(targets, paused_by, reason)

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> None:
        """See `TaskPauses`."""
        await self._pauses.resume(targets)

    def list_task_pauses(self) -> AsyncIterator[TaskPause]:
        """See `TaskPauses`."""
        return self._pauses.listed()

    async def earliest_log_offset(self, topic_id_partition: TopicIdPartition) -> int | None:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.earliest_log_offset(topic_id_partition)

    async def update_earliest_log_offset(
        self, topic_id_partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        await self._writes.raise_earliest(topic_id_partition, offset, leader_epoch)

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """See `RemoteLogMetadataManager`; followers need nothing here."""
        await self._writes.see_leaders(leaders)

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """Changes nothing: facts stay."""

    async def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether PostgreSQL answers: one round trip, whatever the number of segments."""
        try:
            await self._database.ping()
        except UnavailableError:
            return False
        return True

    def watch_partition(
        self, topic_id_partition: TopicIdPartition, from_version: int = 0
    ) -> AsyncIterator[PartitionChange]:
        """See `RemoteLogMetadataManager`."""
        return self._watch.changes(topic_id_partition, from_version)

    async def segment_history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """See `RemoteLogMetadataManager`."""
        return await self._reads.history(segment_id)

    async def close(self) -> None:
        """Nothing of its own to release."""
