"""The role that keeps the facts about remote segments (SR-14), and what it tells of their changes."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass

from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.retention_values import RetentionPlan, RetentionPolicy
from aquifer_core.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

__all__ = ["PartitionChange", "RemoteLogMetadataManager", "SegmentEvent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A change of a partition's remote metadata; versions of one partition rise without reuse.

    Exactly one of `segment` (its state after the change) and `delete_state` is set, or neither for a mere move of the earliest
    log offset.
    """

    version: int
    segment: RemoteLogSegmentMetadata | None = None
    delete_state: RemotePartitionDeleteState | None = None
    earliest_log_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEvent:
    """One line of a segment's history.

    Attributes:
        sequence: rises with time, with gaps.
        from_state: None: the copy began.
        leader_epoch: of the leader that asked for the change; None: somebody who was no leader did.
        reason: for people; may be empty.
        trace_id: of the call that made the change, 32 hex digits; empty: it was not traced.
        timestamp_ms: by the clock of whoever keeps the metadata.
    """

    sequence: int
    segment_id: RemoteLogSegmentId
    from_state: RemoteLogSegmentState | None
    to_state: RemoteLogSegmentState
    broker_id: int
    leader_epoch: int | None
    reason: str
    trace_id: str
    timestamp_ms: int


class RemoteLogMetadataManager(ABC):
    """Facts about remote segments (Kafka's `RemoteLogMetadataManager`, K-1.2 and K-2).

    Strongly consistent: when a write returned, every later read by anybody sees it. Every method raises
    `RemoteStorageUnavailableError` when the facts cannot be had, never an empty answer instead.
    """

    @abstractmethod
    async def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, before anything else, with the properties of the role's prefix as given (SR-5)."""

    @abstractmethod
    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """Records the start of a copy. Idempotent for the same metadata.

        Args:
            metadata: state must be COPY_SEGMENT_STARTED.
            leader_epoch: of the leader this write is for; None only for importers that are not leaders.

        Raises:
            InvalidRequestError: another state, or the id is known with other content.
            StaleLeaderEpochError: a higher leader epoch has been seen for the partition.
            PreconditionError: the partition is being deleted.
        """

    @abstractmethod
    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, leader_epoch: int | None = None
    ) -> None:
        """Moves a segment to another state. Idempotent: moving to the state it has, with the same content, succeeds.

        Raises:
            InvalidRequestError: the target is COPY_SEGMENT_STARTED.
            RemoteResourceNotFoundError: unknown segment. Moving to DELETE_SEGMENT_FINISHED a segment that history
                says is gone succeeds.
            InvalidStateTransitionError: forbidden by the state machine.
            StaleLeaderEpochError: a higher leader epoch has been seen for the partition.
        """

    @abstractmethod
    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds `offset` for `leader_epoch`; None when there is none.

        Among several the one that reaches furthest. No search across epochs.

        Raises:
            RemoteResourceNotFoundError: the partition's deletion has finished.
        """

    @abstractmethod
    async def highest_offset_for_epoch(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int
    ) -> int | None:
        """Highest offset ever finished for the epoch; never decreases, also not after deletion. None: none yet."""

    @abstractmethod
    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata
    ) -> None:
        """Records a step of the partition's deletion. FINISHED forgets its segments.

        Raises:
            InvalidStateTransitionError: forbidden by the state machine.
        """

    @abstractmethod
    def list_partition_deletions(self) -> AsyncIterator[RemotePartitionDeleteMetadata]:
        """Partitions in DELETE_PARTITION_MARKED or _STARTED, by topic id and partition: the work of whoever deletes remote data.

        The topic's name is the one that it had; time and broker are those of the last step.
        """

    @abstractmethod
    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """All segments not yet in DELETE_SEGMENT_FINISHED, by start offset; with `leader_epoch` only those of that epoch."""

    @abstractmethod
    async def remote_log_size(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """Sum of `segment_size_bytes` over the listing of one epoch; 0 for an unknown epoch."""

    @abstractmethod
    async def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """First finished segment of the epoch at or after `offset` in an unbroken chain that may have a transaction index."""

    @abstractmethod
    async def find_segment_for_timestamp(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        timestamp_ms: int,
        min_end_offset: int = 0,
    ) -> RemoteLogSegmentMetadata | None:
        """First finished segment in the lineage whose max timestamp is at or after `timestamp_ms`.

        Args:
            lineage: leader epoch -> start offset of the leader's epoch cache.
            min_end_offset: segments ending below (below the log start) do not count.
        """

    @abstractmethod
    async def list_retention_candidates(
        self,
        topic_id_partition: TopicIdPartition,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> RetentionPlan:
        """What retention deletes now, oldest first, each offset of the lineage counted once (K-3.4)."""

    @abstractmethod
    async def earliest_log_offset(self, topic_id_partition: TopicIdPartition) -> int | None:
        """The log start offset that the leader recorded, None when it never did (SR-14, SR-17)."""

    @abstractmethod
    async def update_earliest_log_offset(
        self, topic_id_partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> None:
        """Raises the recorded log start offset; a lower value changes nothing.

        Raises:
            StaleLeaderEpochError: a higher leader epoch has been seen for the partition.
        """

    @abstractmethod
    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """Tells which partitions this node leads, with their leader epochs (which fence older leaders), and which it follows."""

    @abstractmethod
    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """Tells that this node no longer hosts the partitions."""

    @abstractmethod
    async def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether the partition's facts can be read now."""

    @abstractmethod
    def watch_partition(
        self, topic_id_partition: TopicIdPartition, from_version: int = 0
    ) -> AsyncIterator[PartitionChange]:
        """Changes after `from_version`, then new ones as they happen, without end. 0 begins with what exists now."""

    @abstractmethod
    async def segment_history(self, segment_id: RemoteLogSegmentId) -> list[SegmentEvent]:
        """Every state change of a segment, oldest first, also after it is gone; empty for an id never seen."""

    @abstractmethod
    async def close(self) -> None:
        """Releases everything; idempotent."""

    async def put_remote_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, *, leader_epoch: int | None = None
    ) -> None:
        """The KIP draft's name for `add_remote_log_segment_metadata` (SR-14)."""
        await self.add_remote_log_segment_metadata(metadata, leader_epoch=leader_epoch)
