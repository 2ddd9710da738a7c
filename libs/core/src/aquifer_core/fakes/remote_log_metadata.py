"""A RemoteLogMetadataManager in memory."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from aquifer_core import segment_lifecycle as lifecycle
from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidRequestError
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
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

_State = RemoteLogSegmentState
_NO_END = 2**63 - 1
_Key = tuple[KafkaUuid, int]


@dataclass(slots=True)
class _Stored:
    metadata: RemoteLogSegmentMetadata
    version: int
    finished_version: int = 0


@dataclass(slots=True)
class _Partition:
    """Everything about one partition."""

    segments: dict[KafkaUuid, _Stored] = field(default_factory=dict)
    highest_offsets: dict[int, int] = field(default_factory=dict)
    highest_leader_epoch: int | None = None
    earliest_log_offset: int | None = None
    deletion: RemotePartitionDeleteMetadata | None = None
    version: int = 0
    changes: list[PartitionChange] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def delete_state(self) -> RemotePartitionDeleteState | None:
        return None if self.deletion is None else self.deletion.state

    @property
    def forgotten(self) -> bool:
        return self.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

    def referenced(self, epoch: int) -> list[tuple[int, int, _Stored]]:
        """(first, last offset, segment) of the epoch's finished segments that no other one covers, by first offset."""
        finished = [
            (*stored.metadata.epoch_ranges()[epoch], stored)
            for stored in self.segments.values()
            if stored.metadata.state is _State.COPY_SEGMENT_FINISHED
            and epoch in stored.metadata.segment_leader_epochs
        ]
        kept = [entry for entry in finished if not any(_covers(other, entry) for other in finished)]
        return sorted(kept, key=lambda entry: entry[0])

    def announce(self, change: PartitionChange) -> None:
        self.changes.append(change)
        self.changed.set()
        self.changed = asyncio.Event()


def _covers(other: tuple[int, int, _Stored], entry: tuple[int, int, _Stored]) -> bool:
    """Whether another copy holds all of this one and more, or the same and was finished later."""
    start, end, stored = entry
    other_start, other_end, other_stored = other
    if other_start > start or other_end < end:
        return False
    if (other_start, other_end) != (start, end):
        return True
    return other_stored.finished_version > stored.finished_version


class InMemoryRemoteLogMetadataManager(RemoteLogMetadataManager):
    """Facts about remote segments, kept in memory: for tests and single-process trials."""

    def __init__(
        self, *, clock: Clock | None = None, trace_id: Callable[[], str] = lambda: ""
    ) -> None:
        self._clock = clock or SystemClock()
        self._trace_id = trace_id
        self._partitions: dict[_Key, _Partition] = {}
        self._events: list[SegmentEvent] = []

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Takes any properties and needs none."""

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        tip = metadata.topic_id_partition
        lifecycle.check_new_segment(metadata)
        partition = self._of(tip)
        lifecycle.check_leader_epoch(tip, leader_epoch, partition.highest_leader_epoch)
        lifecycle.check_partition_accepts_segments(tip, partition.delete_state)
        known = self._find(metadata.segment_id)
        if known is not None:
            lifecycle.check_same_segment(known, metadata)
        elif (last := self._last_state(metadata.segment_id.id)) is not None:
            lifecycle.check_transition(metadata.segment_id, last, metadata.state)
        self._raise_epoch(partition, leader_epoch)
        if known is None:
            partition.version += 1
            partition.segments[metadata.segment_id.id] = _Stored(metadata, partition.version)
            self._log(metadata, None, leader_epoch, "copy started")
            partition.announce(PartitionChange(version=partition.version, segment=metadata))

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, leader_epoch: int | None = None
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        tip = update.segment_id.topic_id_partition
        lifecycle.check_update_target(update)
        partition = self._of(tip)
        lifecycle.check_leader_epoch(tip, leader_epoch, partition.highest_leader_epoch)
        stored = partition.segments.get(update.segment_id.id)
        if stored is None:
            last = self._last_state_in(update.segment_id)
            lifecycle.check_update_of_unknown(update, last)
            self._raise_epoch(partition, leader_epoch)
            return
        before = stored.metadata
        lifecycle.check_transition(update.segment_id, before.state, update.state)
        self._raise_epoch(partition, leader_epoch)
        after = before.with_update(update)
        if after != before:
            self._apply(partition, stored, after)
            self._log(after, before.state, leader_epoch, update.reason)
            partition.announce(PartitionChange(version=partition.version, segment=after))

    def _apply(
        self, partition: _Partition, stored: _Stored, after: RemoteLogSegmentMetadata
    ) -> None:
        before = stored.metadata.state
        partition.version += 1
        stored.metadata, stored.version = after, partition.version
        if after.state is _State.COPY_SEGMENT_FINISHED and before is not after.state:
            stored.finished_version = partition.version
            for epoch, (_, end) in after.epoch_ranges().items():
                highest = partition.highest_offsets.get(epoch, -1)
                partition.highest_offsets[epoch] = max(highest, end)
        elif after.state is _State.DELETE_SEGMENT_FINISHED:
            del partition.segments[after.segment_id.id]

    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """See `RemoteLogMetadataManager`."""
        partition = self._of(topic_id_partition)
        if partition.forgotten:
            raise lifecycle.partition_gone(topic_id_partition)
        holding = [
            stored
            for start, end, stored in partition.referenced(leader_epoch)
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
        partition.version += 1
        partition.deletion = metadata
        partition.announce(PartitionChange(version=partition.version, delete_state=metadata.state))
        if partition.forgotten:
            self._forget(partition)

    async def list_partition_deletions(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """See `RemoteLogMetadataManager`."""
        for _, partition in sorted(self._partitions.items(), key=lambda item: item[0]):
            if partition.deletion is not None and not partition.forgotten:
                yield partition.deletion

    def _forget(self, partition: _Partition) -> None:
        for stored in partition.segments.values():
            before = stored.metadata
            gone = before.with_update(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=before.segment_id,
                    event_timestamp_ms=before.event_timestamp_ms,
                    state=_State.DELETE_SEGMENT_FINISHED,
                    broker_id=before.broker_id,
                    custom_metadata=before.custom_metadata,
                )
            )
            self._log(gone, before.state, None, "partition deleted")
        partition.segments.clear()
        partition.highest_offsets.clear()
        partition.earliest_log_offset = None

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """See `RemoteLogMetadataManager`."""
        for metadata in self._listed(topic_id_partition, leader_epoch):
            yield metadata

    async def remote_log_size(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `RemoteLogMetadataManager`."""
        listed = self._listed(topic_id_partition, leader_epoch)
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
        for start, end, stored in entries[first:]:
            if start > reached + 1:
                return None
            if not stored.metadata.txn_index_empty:
                return stored.metadata
            reached = end
        return None

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
            for metadata in self._listed(topic_id_partition, None)
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
        return plan_retention(self._listed(topic_id_partition, None), lineage, policy, now_ms)

    async def earliest_log_offset(self, topic_id_partition: TopicIdPartition) -> int | None:
        """See `RemoteLogMetadataManager`."""
        return self._of(topic_id_partition).earliest_log_offset

    async def update_earliest_log_offset(
        self, topic_id_partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        partition = self._of(topic_id_partition)
        lifecycle.check_leader_epoch(
            topic_id_partition, leader_epoch, partition.highest_leader_epoch
        )
        self._raise_epoch(partition, leader_epoch)
        current = partition.earliest_log_offset
        if partition.forgotten or (current is not None and offset <= current):
            return
        partition.version += 1
        partition.earliest_log_offset = offset
        partition.announce(PartitionChange(version=partition.version, earliest_log_offset=offset))

    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        """See `PartitionSummaries`."""
        if len(partitions) > MAX_SUMMARIES:
            raise InvalidRequestError(f"{len(partitions)} partitions in one question")
        found = [self._summary(tip) for tip, _ in partitions]
        return [
            None if summary.version == known else summary
            for summary, (_, known) in zip(found, partitions, strict=True)
        ]

    def _summary(self, tip: TopicIdPartition) -> PartitionSummary:
        partition, listed = self._of(tip), self._listed(tip, None)
        ages = [
            each.max_timestamp_ms if each.max_timestamp_ms >= 0 else each.event_timestamp_ms
            for each in listed
        ]
        return PartitionSummary(
            version=partition.version,
            earliest_log_offset=partition.earliest_log_offset,
            segments=len(listed),
            unfinished_segments=sum(
                each.state is not _State.COPY_SEGMENT_FINISHED for each in listed
            ),
            oldest_timestamp_ms=min(ages, default=-1),
            highest_end_offset=max((each.end_offset for each in listed), default=-1),
            highest_offsets=dict(partition.highest_offsets),
        )

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """See `RemoteLogMetadataManager`."""
        for tip, leader_epoch in leaders.items():
            self._raise_epoch(self._of(tip), leader_epoch)

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """Changes nothing: facts stay."""

    async def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Always: memory has no start-up."""
        return True

    async def watch_partition(
        self, topic_id_partition: TopicIdPartition, from_version: int = 0
    ) -> AsyncIterator[PartitionChange]:
        """See `RemoteLogMetadataManager`."""
        partition = self._of(topic_id_partition)
        version = from_version
        if version == 0:
            version = partition.version
            for change in self._present(partition):
                yield change
        while True:
            changed = partition.changed
            pending = [change for change in partition.changes if change.version > version]
            for change in pending:
                version = change.version
                yield change
            if not pending:
                await changed.wait()

    async def segment_history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """See `RemoteLogMetadataManager`."""
        return [event for event in self._events if event.segment_id == segment_id]

    async def close(self) -> None:
        """Nothing to release."""

    def _of(self, tip: TopicIdPartition) -> _Partition:
        return self._partitions.setdefault((tip.topic_id, tip.partition), _Partition())

    def _find(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        for partition in self._partitions.values():
            if segment_id.id in partition.segments:
                return partition.segments[segment_id.id].metadata
        return None

    def _listed(
        self, tip: TopicIdPartition, leader_epoch: int | None
    ) -> list[RemoteLogSegmentMetadata]:
        listed = [
            stored.metadata
            for stored in self._of(tip).segments.values()
            if leader_epoch is None or leader_epoch in stored.metadata.segment_leader_epochs
        ]
        return sorted(listed, key=lambda found: (found.start_offset, found.segment_id.id))

    @staticmethod
    def _raise_epoch(partition: _Partition, leader_epoch: int | None) -> None:
        if leader_epoch is not None:
            highest = partition.highest_leader_epoch
            partition.highest_leader_epoch = max(
                leader_epoch, leader_epoch if highest is None else highest
            )

    @staticmethod
    def _present(partition: _Partition) -> list[PartitionChange]:
        """What exists now, as changes in the order of their versions."""
        present = [
            PartitionChange(version=stored.version, segment=stored.metadata)
            for stored in partition.segments.values()
        ]
        deletions = [change for change in partition.changes if change.delete_state is not None]
        moves = [change for change in partition.changes if change.earliest_log_offset is not None]
        present += deletions[-1:]
        if not partition.forgotten:
            present += moves[-1:]
        return sorted(present, key=lambda change: change.version)

    def _last_state(self, segment: KafkaUuid) -> RemoteLogSegmentState | None:
        return next(
            (event.to_state for event in reversed(self._events) if event.segment_id.id == segment),
            None,
        )

    def _last_state_in(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentState | None:
        known = any(event.segment_id == segment_id for event in self._events)
        return self._last_state(segment_id.id) if known else None

    def _log(
        self,
        after: RemoteLogSegmentMetadata,
        before: RemoteLogSegmentState | None,
        leader_epoch: int | None,
        reason: str,
    ) -> None:
        self._events.append(
            SegmentEvent(
                sequence=len(self._events) + 1,
                segment_id=after.segment_id,
                from_state=before,
                to_state=after.state,
                broker_id=after.broker_id,
                leader_epoch=leader_epoch,
                reason=reason,
                trace_id=self._trace_id(),
                timestamp_ms=self._clock.now_ms(),
            )
        )
