"""What a cluster is made of: brokers, topics, partitions, settings and their changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from aquifer_core.errors import AquiferError
from aquifer_core.ids import KafkaUuid

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a listener of a broker is reached."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker as the cluster knows it.

    Attributes:
        incarnation: of the broker's process, in Kafka's 22-character form.
        broker_epoch: of the registration; rises with each one.
        broker_log_address: `host:port` of its BrokerLogService, empty when it does not tier.
        alive: whether it holds a lease.
        log_dirs: ids of its log directories.
    """

    broker_id: int
    incarnation: str
    endpoints: tuple[Endpoint, ...] = ()
    rack: str = ""
    broker_log_address: str = ""
    log_dirs: tuple[str, ...] = ()
    broker_epoch: int = 0
    alive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as the cluster knows it.

    Attributes:
        replicas: broker ids, the preferred leader first.
        leader: broker id, `NO_LEADER` for none.
        leader_epoch: rises with each change of the leader or of its incarnation.
        partition_epoch: rises with each change.
        target_replicas: where a reassignment under way leads, empty for none.
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    target_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions by number, and the settings that were set."""

    topic_id: KafkaUuid
    name: str
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; counts of -1 stand for the defaults, assignments win over both. Without an id it gets a new one."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: KafkaUuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Partitions to add: the count afterwards, and chosen replicas of the new ones."""

    name: str
    total_count: int
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """Outcome for one topic; `error` is None when it was done."""

    name: str
    topic_id: KafkaUuid | None = None
    topic: Topic | None = None
    error: AquiferError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResults:
    """Outcomes in the order asked, and the version of the cluster metadata that holds the changes."""

    results: tuple[TopicResult, ...]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A lease given to a broker."""

    cluster_id: str
    broker_epoch: int
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedLease:
    """A lease renewed, and the version of the cluster metadata then."""

    lease_ms: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Everything; broker settings by broker id as text, the empty text for the default of all."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    broker_configs: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDelta:
    """What it names replaces what was known of it; the rest stays."""

    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    deleted_topic_ids: tuple[KafkaUuid, ...]
    broker_configs: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """A message of the watch; no content is a sign of life."""

    version: int
    content: ClusterSnapshot | ClusterDelta | None = None


class ConfigResourceType(Enum):
    """What settings belong to."""

    TOPIC = "topic"
    BROKER = "broker"


class ConfigOperation(Enum):
    """How a setting changes."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """A topic by name, or a broker by id as text (empty: the default of all brokers)."""

    type: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change of one setting."""

    key: str
    value: str | None
    operation: ConfigOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's wish for other in-sync replicas, compare-and-set on the partition epoch."""

    topic_id: KafkaUuid
    partition: int
    broker_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicPartition:
    """Names a partition as clients do."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """An offset that a consumer group committed.

    Attributes:
        offset: next one to read.
        leader_epoch: of the last record read, -1 when unknown.
        metadata: the client's own text.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinator:
    """A broker that says that it coordinates a group.

    Attributes:
        broker_epoch: of its registration.
        cluster_version: of the cluster metadata by which it does.
    """

    broker_id: int
    broker_epoch: int
    cluster_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """State of a transactional id.

    Attributes:
        state: Kafka's name of it.
        start_timestamp_ms: when the transaction began, -1 for none.
        version: rises with each write; in a write the version it is based on, 0 for none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[TopicPartition, ...] = ()
    start_timestamp_ms: int = -1
    version: int = 0
