"""A RemoteLogMetadataManager in memory."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from aquifer_core import segment_lifecycle as lifecycle
from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidRequestError
from aquifer_core.fakes.partition_facts import PartitionFacts
from aquifer_core.fakes.segment_history import SegmentHistory
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.leader_epoch import (
    build_filtered_leader_epoch_map,
    is_segment_within_leader_epochs,
)
from aquifer_core.partition_summary import MAX_SUMMARIES, PartitionSummary
from aquifer_core.ports import (
    Clock,
    PartitionChange,
    RemoteLogMetadataManager,
    RetentionPlan,
    RetentionPolicy,
    SegmentEvent,
)
from aquifer_core.retention import plan_retention
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.segment_run import SegmentRun, trimmed_run
from aquifer_core.state import RemoteLogSegmentState
from aquifer_core.task_pauses import PauseTarget, TaskPause, check_new_pauses

_State = RemoteLogSegmentState
_NO_END = 2**63 - 1
_Key = tuple[KafkaUuid, int]


class InMemoryRemoteLogMetadataManager(RemoteLogMetadataManager):
    """Facts about remote segments, kept in memory: for tests and single-process trials."""

    def __init__(
        self, *, clock: Clock | None = None, trace_id: Callable[[], str] = lambda: ""
    ) -> None:
        self._partitions: dict[_Key, PartitionFacts] = {}
        self._clock = clock or SystemClock()
        self._history = SegmentHistory(self._clock, trace_id)
        self._pauses: dict[PauseTarget, TaskPause] = {}

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Takes any properties and needs none."""

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        tip = metadata.topic_id_partition
        lifecycle.check_new_segment(metadata)
        partition = self._of(tip)
        partition.check_epoch(tip, leader_epoch)
        lifecycle.check_partition_accepts_segments(tip, partition.delete_state)
        known = self._find(metadata.segment_id)
        if known is not None:
            lifecycle.check_same_segment(known, metadata)
        elif (last := self._history.last_state(metadata.segment_id.id)) is not None:
            lifecycle.check_transition(metadata.segment_id, last, metadata.state)
        partition.see_epoch(leader_epoch)
        if known is None:
            self._history.add(metadata, None, leader_epoch, "copy started")
            partition.add(metadata)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        tip = update.segment_id.topic_id_partition
        lifecycle.check_update_target(update)
        partition = self._of(tip)
        partition.check_epoch(tip, leader_epoch)
        known = partition.segments.get(update.segment_id.id)
        if known is None:
            last = self._history.last_state_in(update.segment_id)
            lifecycle.check_update_of_unknown(update, last)
            partition.see_epoch(leader_epoch)
            return
        before = known.metadata
        lifecycle.check_update(update, before.state)
        partition.see_epoch(leader_epoch)
        after = before.with_update(update)
        if after != before:
            self._history.add(after, before.state, leader_epoch, update.reason)
            partition.change(known, after)

    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        partition = self._of(topic_id_partition)
        if partition.forgotten:
            raise lifecycle.partition_gone(topic_id_partition)
        holding = [
            known
            for start, end, known in partition.referenced(leader_epoch)
            if start <= offset <= end
        ]
        return holding[-1].metadata if holding else None

    async def highest_offset_for_epoch(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int
    ) -> int | None:
        """See `RemoteLogMetadataManager`."""
        return self._of(topic_id_partition).highest_offsets.get(leader_epoch)

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        tip = metadata.topic_id_partition
        partition = self._of(tip)
        lifecycle.check_partition_delete_transition(tip, partition.delete_state, metadata.state)
        if partition.delete_state is metadata.state:
            return
        partition.delete(metadata)
        if partition.forgotten:
            self._forget(partition)
            self._pauses.pop(tip, None)

    async def list_partition_deletions(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """See `RemoteLogMetadataManager`."""
        for _, partition in sorted(self._partitions.items(), key=lambda item: item[0]):
            if partition.deletion is not None and not partition.forgotten:
                yield partition.deletion

    def _forget(self, partition: PartitionFacts) -> None:
        for known in partition.segments.values():
            before = known.metadata
            gone = before.with_update(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=before.segment_id,
                    event_timestamp_ms=before.event_timestamp_ms,
                    state=_State.DELETE_SEGMENT_FINISHED,
                    broker_id=before.broker_id,
                    custom_metadata=before.custom_metadata,
                )
            )
            self._history.add(gone, before.state, None, "partition deleted")
        partition.forget()

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `RemoteLogMetadataManager`."""
        for metadata in self._of(topic_id_partition).listed(leader_epoch):
            yield metadata

    async def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `SegmentListings`."""
        for metadata in self._of(topic_id_partition).listed():
            if metadata.start_offset >= start_offset:
                yield metadata

    async def remote_log_size(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `RemoteLogMetadataManager`."""
        listed = self._of(topic_id_partition).listed(leader_epoch)
        return sum(metadata.segment_size_bytes for metadata in listed)

    async def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        entries = self._of(topic_id_partition).referenced(leader_epoch)
        first = bisect_right(entries, offset, key=lambda entry: entry[0]) - 1
        if first < 0 or entries[first][1] < offset:
            return None
        reached = entries[first][1]
        for start, end, known in entries[first:]:
            if start > reached + 1:
                return None
            if not known.metadata.txn_index_empty:
                return known.metadata
            reached = end
        return None

    async def segment_run(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int, max_bytes: int
    ) -> SegmentRun:
        """See `SegmentRuns`."""
        partition = self._of(topic_id_partition)
        if partition.forgotten:
            raise lifecycle.partition_gone(topic_id_partition)
        entries = partition.referenced(leader_epoch)
        first = bisect_right(entries, offset, key=lambda entry: entry[0]) - 1
        if first < 0 or entries[first][1] < offset:
            return SegmentRun(segments=(), may_have_transactions=False)
        chain = [(start, end, known.metadata) for start, end, known in entries[first:]]
        finished = [
            each for each in partition.listed() if each.state is _State.COPY_SEGMENT_FINISHED
        ]
        later = [each for each in finished if max(each.segment_leader_epochs) > leader_epoch]
        return SegmentRun(
            segments=tuple(trimmed_run(chain, offset, max_bytes)),
            may_have_transactions=not all(
                each.txn_index_empty for each in (*later, *(segment for _, _, segment in chain))
            ),
        )

    async def find_segment_for_timestamp(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        min_end_offset: int = 0,
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        filtered = build_filtered_leader_epoch_map(lineage)
        matching = (
            metadata
            for metadata in self._of(topic_id_partition).listed()
            if metadata.state is _State.COPY_SEGMENT_FINISHED
            and metadata.max_timestamp_ms >= timestamp_ms
            and metadata.end_offset >= min_end_offset
            and is_segment_within_leader_epochs(
                segment_leader_epochs=metadata.segment_leader_epochs,
                end_offset=metadata.end_offset,
                log_end_offset=_NO_END,
                lineage=filtered,
            )
        )
        return min(
            matching,
            key=lambda found: (found.start_offset, -found.end_offset, found.segment_id.id),
            default=None,
        )

    async def list_retention_candidates(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """See `RemoteLogMetadataManager`."""
        return plan_retention(self._of(topic_id_partition).listed(), lineage, policy, now_ms)

    async def earliest_log_offset(self, topic_id_partition: TopicIdPartition) -> int | None:
        """See `RemoteLogMetadataManager`."""
        return self._of(topic_id_partition).earliest_log_offset

    async def update_earliest_log_offset(
        self, topic_id_partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        partition = self._of(topic_id_partition)
        partition.check_epoch(topic_id_partition, leader_epoch)
        partition.see_epoch(leader_epoch)
        current = partition.earliest_log_offset
        if partition.forgotten or (current is not None and offset <= current):
            return
        partition.raise_log_start(offset)

    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """See `PartitionSummaries`."""
        if len(partitions) > MAX_SUMMARIES:
            raise InvalidRequestError(f"{len(partitions)} partitions in one question")
        found = [self._of(tip).summary() for tip, _ in partitions]
        return [
            None if summary.version == known else summary
            for summary, (_, known) in zip(found, partitions, strict=True)
        ]

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> None:
        """See `TaskPauses`."""
        check_new_pauses(targets, paused_by, reason)
        since_ms = self._clock.now_ms()
        for target in targets:
            pause = TaskPause(target=target, since_ms=since_ms, paused_by=paused_by, reason=reason)
            self._pauses.setdefault(target, pause)

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> None:
        """See `TaskPauses`."""
        for target in targets:
            self._pauses.pop(target, None)

    async def list_task_pauses(self) -> AsyncIterator[TaskPause]:
        """See `TaskPauses`."""
        for pause in sorted(self._pauses.values(), key=lambda each: (each.topic, str(each.target))):
            yield pause

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        for tip, leader_epoch in leaders.items():
            self._of(tip).see_epoch(leader_epoch)

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """Changes nothing: facts stay."""

    async def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Always: memory has no start-up."""
        return True

    def watch_partition(
        self, topic_id_partition: TopicIdPartition, from_version: int = 0
    ) -> AsyncIterator[PartitionChange]:
        """See `RemoteLogMetadataManager`."""
        return self._of(topic_id_partition).watch(from_version)

    async def segment_history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """See `RemoteLogMetadataManager`."""
        return self._history.of(segment_id)

    async def close(self) -> None:
        """Nothing to release."""

    def _of(self, tip: TopicIdPartition) -> PartitionFacts:
        return self._partitions.setdefault((tip.topic_id, tip.partition), PartitionFacts())

    def _find(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        for partition in self._partitions.values():
            if segment_id.id in partition.segments:
                return partition.segments[segment_id.id].metadata
        return None
