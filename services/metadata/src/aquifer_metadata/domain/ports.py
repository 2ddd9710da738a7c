"""What the services need of whoever keeps the cluster's state and the history.

Every method raises `RemoteStorageUnavailableError` when the state cannot be had. All state is shared: any number of
replicas of the service may stand on it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_metadata.domain.cluster import (
    Broker,
    ClusterChange,
    ConfigChange,
    ConfigResource,
    GroupCoordinator,
    GroupOffset,
    IsrChange,
    NewPartitions,
    NewTopic,
    Partition,
    Registration,
    RenewedLease,
    TopicPartition,
    TopicResults,
    TransactionState,
)


class BrokerStore(Protocol):
    """Brokers and their leases."""

    async def register(self, broker: Broker) -> Registration:
        """Gives an incarnation of a broker a lease, and the leadership it has a claim to; idempotent.

        Raises:
            PreconditionError: a newer incarnation holds a live lease (STALE_BROKER_EPOCH).
        """
        ...

    async def heartbeat(self, broker_id: int, broker_epoch: int) -> RenewedLease:
        """Renews a lease.

        Raises:
            RemoteResourceNotFoundError: not registered, or expired (BROKER_NOT_FOUND).
            PreconditionError: another incarnation has registered (STALE_BROKER_EPOCH).
        """
        ...

    async def unregister(self, broker_id: int, broker_epoch: int) -> None:
        """Ends a lease at once and moves leadership away; idempotent."""
        ...

    async def lease_clock_s(self) -> float:
        """The clock that leases run by, in seconds since the Unix epoch."""
        ...

    async def expire_leases(self) -> Sequence[int]:
        """Ends overdue leases and moves leadership away; returns the brokers concerned. One replica at a time does it.

        A lease that ends much later than one given now is overdue too: the clock was set back since, and whoever lives has renewed it.
        """
        ...


class TopicStore(Protocol):
    """Topics."""

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> TopicResults:
        """Creates topics, each with an outcome of its own."""
        ...

    async def delete(self, names: Sequence[str], topic_ids: Sequence[KafkaUuid]) -> TopicResults:
        """Deletes topics with the group offsets on them, each with an outcome of its own.

        Their remote partitions are marked for deletion at the same moment, and take no further copies.
        """
        ...

    async def add_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> TopicResults:
        """Adds partitions, each topic with an outcome of its own."""
        ...


class ConfigStore(Protocol):
    """Settings of topics and brokers."""

    async def alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> tuple[Mapping[str, str], int]:
        """Changes settings, all or none; returns those set afterwards and the version.

        Raises:
            RemoteResourceNotFoundError: no such topic.
            InvalidConfigurationError: a key or value is refused.
        """
        ...

    async def describe(self, resource: ConfigResource) -> Mapping[str, str]:
        """The settings that are set.

        Raises:
            RemoteResourceNotFoundError: no such topic.
        """
        ...


class PartitionStore(Protocol):
    """Leaders, in-sync replicas and replicas of partitions."""

    async def change_isr(self, change: IsrChange) -> Partition:
        """Sets the in-sync replicas.

        Raises:
            RemoteResourceNotFoundError: no such partition.
            NotLeaderError, StaleLeaderEpochError: the caller does not lead it in that epoch.
            ConcurrentUpdateError: the partition epoch has moved on.
        """
        ...

    async def elect_leaders(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> int:
        """Moves leadership to the preferred replica, or another live in-sync one; returns the version.

        Raises:
            RemoteResourceNotFoundError: no such partition.
            NotLeaderError: nobody can lead a partition that was named.
        """
        ...

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> int:
        """Sets other replicas; old ones stay until the new ones are in sync. Returns the version.

        Raises:
            RemoteResourceNotFoundError: no such partition.
            InvalidRequestError: unknown brokers, doubled ones, none, too many, or, as long as brokers do not replicate, other ones
                than now.
        """
        ...


class GroupStore(Protocol):
    """Offsets of consumer groups.

    Writes for a coordinator raise, and change nothing:
        PreconditionError: its registration is over (STALE_BROKER_EPOCH).
        ConcurrentUpdateError: another broker may have coordinated the group since it looked.
    """

    async def commit(
        self, group_id: str, offsets: Sequence[GroupOffset], coordinator: GroupCoordinator | None
    ) -> None:
        """Stores offsets, all or none; without a coordinator in any case."""
        ...

    async def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Sequence[GroupOffset]:
        """Those offsets that exist; of all partitions when none are named."""
        ...

    async def delete(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        coordinator: GroupCoordinator | None,
    ) -> None:
        """Deletes offsets, of the whole group when no partitions are named; without a coordinator in any case. Idempotent."""
        ...

    async def group_ids(self) -> Sequence[str]:
        """Groups that have offsets, sorted."""
        ...


class TransactionStore(Protocol):
    """Producer ids and transactional ids."""

    async def allocate_producer_ids(self, count: int) -> int:
        """Reserves a block of ids that is never given again; returns the first."""
        ...

    async def get(self, transactional_id: str) -> TransactionState | None:
        """State of a transactional id, None when unknown."""
        ...

    async def put(self, state: TransactionState) -> int:
        """Writes a state, compare-and-set on its version; returns the new version.

        Raises:
            ConcurrentUpdateError: the version has moved on.
        """
        ...


class ClusterWatch(Protocol):
    """Changes of the cluster as they happen."""

    def changes(self, from_version: int) -> AsyncIterator[ClusterChange]:
        """A snapshot when `from_version` is 0 or too old, then every change after it, without end."""
        ...


class RemoteLogHistory(Protocol):
    """How partitions' remote segments stood at past times."""

    def segments_at(
        self, tip: TopicIdPartition, timestamp_ms: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """Segments that were not gone, in the states of then, by start offset.

        Raises:
            OffsetOutOfRangeError: the history does not reach back that far.
        """
        ...
