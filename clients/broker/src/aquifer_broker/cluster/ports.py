"""The port to the cluster's metadata, implemented over gRPC by `metadata_link`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from aquifer_core.errors import ErrorReason
from aquifer_core.ids import KafkaUuid

from aquifer_broker.cluster.view import BrokerInfo, ClusterUpdate, TopicInfo

__all__ = [
    "ClusterMetadata",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "Coordination",
    "GroupOffset",
    "Lease",
    "NewPartitions",
    "NewTopic",
    "OffsetStore",
    "ProducerIdBlock",
    "TopicResult",
]


class ConfigResource(Enum):
    """What settings belong to."""

    TOPIC = "TOPIC"
    BROKER = "BROKER"


class ConfigOperation(Enum):
    """How a setting changes; the values are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Change of one setting; `value` is None for DELETE."""

    key: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A registration of this broker, to be renewed at a third of `lease_ms`."""

    cluster_id: str
    broker_epoch: int
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; `assignments` (partition -> replicas) replaces the two numbers when not empty."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Partitions to add to a topic; `assignments` are the replicas of the new ones in order."""

    name: str
    total_count: int
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """Outcome for one topic; `reason` None: done. `topic` is the state afterwards where it exists."""

    name: str
    topic_id: KafkaUuid | None = None
    reason: ErrorReason | None = None
    message: str | None = None
    topic: TopicInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """Producer ids that are never given again."""

    first_id: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed offset; `leader_epoch` -1: unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """By which registration, and which version of the cluster, this broker coordinates a group."""

    broker_id: int
    broker_epoch: int
    cluster_version: int


class OffsetStore(Protocol):
    """Where consumer groups' offsets are kept. Every method raises `UnavailableError` when it cannot be reached.

    Writes also raise, and change nothing:
        PreconditionError: (STALE_BROKER_EPOCH) the registration of the coordinator is over.
        ConcurrentUpdateError: brokers have registered since; `clusterVersion` of its metadata is the version to be seen.
    """

    async def commit_offsets(
        self, group_id: str, offsets: Sequence[GroupOffset], coordination: Coordination
    ) -> None:
        """Stores all or none."""
        ...

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None
    ) -> list[GroupOffset]:
        """Those that exist; None: all of the group."""
        ...

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        coordination: Coordination,
    ) -> None:
        """Deletes some; None: the whole group. Idempotent."""
        ...

    async def list_groups(self) -> list[str]:
        """Groups that have offsets."""
        ...


class ClusterMetadata(OffsetStore, Protocol):
    """What a broker asks of the cluster. Every method raises `UnavailableError` when it cannot be reached."""

    async def register_broker(self, broker: BrokerInfo) -> Lease:
        """Registers this incarnation; idempotent.

        Raises:
            PreconditionError: (STALE_BROKER_EPOCH) another live incarnation has this id.
        """
        ...

    async def heartbeat(self, broker_id: int, broker_epoch: int) -> int:
        """Renews the lease; its length in ms.

        Raises:
            RemoteResourceNotFoundError: the lease is over; register again.
            PreconditionError: another incarnation has registered.
        """
        ...

    async def unregister_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the lease. Idempotent."""
        ...

    def watch(self, from_version: int) -> AsyncIterator[ClusterUpdate]:
        """Snapshot first when `from_version` is 0 or too old, then every change; endless, raises when it breaks."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Outcomes in the order given."""
        ...

    async def delete_topics(
        self, names: Sequence[str], topic_ids: Sequence[KafkaUuid] = ()
    ) -> list[TopicResult]:
        """Outcomes: names first, then ids."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Outcomes in the order given."""
        ...

    async def alter_configs(
        self,
        resource: ConfigResource,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes settings, all or none.

        Raises:
            RemoteResourceNotFoundError: no such topic.
            InvalidConfigurationError: a key or value is refused.
        """
        ...

    async def allocate_producer_ids(self, broker_id: int, count: int) -> ProducerIdBlock:
        """Reserves producer ids."""
        ...
