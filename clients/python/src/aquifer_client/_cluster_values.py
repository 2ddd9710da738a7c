"""What the cluster metadata says: brokers, topics, results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import ErrorReason
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_rpc import convert


class ConfigResource(IntEnum):
    """What settings belong to; values as in the contract."""

    TOPIC = 1
    BROKER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a listener of a broker is reached."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker; `alive` says whether its lease is."""

    broker_id: int
    incarnation: str
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str
    broker_log_address: str
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition; `leader` is None while it has none. The first replica is the preferred leader."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic; `configs` holds what was set, without defaults."""

    topic_id: KafkaUuid
    name: str
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str]

    def id_of(self, partition: int) -> TopicIdPartition:
        """The full name of one of its partitions."""
        return TopicIdPartition(self.topic_id, self.name, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The whole cluster at one version."""

    version: int
    cluster_id: str
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    broker_configs: Mapping[str, Mapping[str, str]]

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        return next((topic for topic in self.topics if topic.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create.

    Attributes:
        num_partitions, replication_factor: -1 takes the cluster's default.
        assignments: partition -> replicas, instead of the two numbers.
        configs: settings other than the defaults.
        topic_id: of a topic whose remote segments are known already, after a rebuild or to take a deletion back; None: a new one.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: KafkaUuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """Outcome for one topic; `reason` is None when it was done."""

    name: str
    topic_id: KafkaUuid | None
    reason: ErrorReason | None
    message: str
    topic: Topic | None


def broker_from_pb(message: pb.Broker) -> Broker:
    """A broker from its message."""
    return Broker(
        broker_id=message.broker_id,
        incarnation=message.incarnation,
        broker_epoch=message.broker_epoch,
        endpoints=tuple(
            Endpoint(listener=each.listener, host=each.host, port=each.port)
            for each in message.endpoints
        ),
        rack=message.rack,
        broker_log_address=message.broker_log_address,
        alive=message.alive,
    )


def topic_from_pb(message: pb.Topic) -> Topic:
    """A topic from its message."""
    return Topic(
        topic_id=convert.uuid_from_pb(message.topic_id, "topic_id"),
        name=message.name,
        partitions=tuple(
            Partition(
                partition=each.partition,
                replicas=tuple(each.replicas),
                isr=tuple(each.isr),
                leader=None if each.leader < 0 else each.leader,
                leader_epoch=each.leader_epoch,
            )
            for each in message.partitions
        ),
        configs=dict(message.configs),
    )


def snapshot_from_pb(version: int, message: pb.ClusterSnapshot) -> ClusterSnapshot:
    """A snapshot from its message."""
    return ClusterSnapshot(
        version=version,
        cluster_id=message.cluster_id,
        brokers=tuple(map(broker_from_pb, message.brokers)),
        topics=tuple(map(topic_from_pb, message.topics)),
        broker_configs={key: dict(each.configs) for key, each in message.broker_configs.items()},
    )


def new_topic_to_pb(topic: NewTopic) -> pb.NewTopic:
    """A topic to create, to its message."""
    return pb.NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.ReplicaAssignment(partition=partition, replicas=replicas)
            for partition, replicas in topic.assignments.items()
        ],
        configs=topic.configs,
        topic_id=None if topic.topic_id is None else str(topic.topic_id),
    )


def topic_result_from_pb(message: pb.TopicResult) -> TopicResult:
    """An outcome from its message; a reason that is not known here reads as INTERNAL."""
    reason = message.error_reason
    known = ErrorReason(reason) if reason in ErrorReason.__members__ else ErrorReason.INTERNAL
    return TopicResult(
        name=message.name,
        topic_id=convert.uuid_from_pb(message.topic_id) if message.topic_id else None,
        reason=known if reason else None,
        message=message.error_message,
        topic=topic_from_pb(message.topic) if message.HasField("topic") else None,
    )
