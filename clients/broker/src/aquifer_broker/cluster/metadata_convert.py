"""Cluster values <-> messages of ClusterMetadataService."""

from collections.abc import Iterable

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import ErrorReason
from aquifer_core.ids import KafkaUuid

from aquifer_broker.cluster.ports import (
    ConfigChange,
    ConfigOperation,
    Coordination,
    GroupOffset,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from aquifer_broker.cluster.view import (
    BrokerInfo,
    ClusterUpdate,
    Endpoint,
    PartitionInfo,
    TopicInfo,
)

__all__ = [
    "broker_from_pb",
    "broker_to_pb",
    "config_change_to_pb",
    "coordination_to_pb",
    "group_offset_from_pb",
    "group_offset_to_pb",
    "new_partitions_to_pb",
    "new_topic_to_pb",
    "topic_from_pb",
    "topic_result_from_pb",
    "update_from_pb",
]

_OPERATIONS = {
    ConfigOperation.SET: pb.CONFIG_OPERATION_SET,
    ConfigOperation.DELETE: pb.CONFIG_OPERATION_DELETE,
    ConfigOperation.APPEND: pb.CONFIG_OPERATION_APPEND,
    ConfigOperation.SUBTRACT: pb.CONFIG_OPERATION_SUBTRACT,
}


def broker_to_pb(broker: BrokerInfo) -> pb.Broker:
    """The broker as it registers."""
    return pb.Broker(
        broker_id=broker.broker_id,
        incarnation=broker.incarnation,
        broker_epoch=broker.broker_epoch,
        endpoints=[
            pb.Endpoint(listener=each.listener, host=each.host, port=each.port)
            for each in broker.endpoints
        ],
        rack=broker.rack,
        broker_log_address=broker.broker_log_address,
        alive=broker.alive,
        log_dirs=broker.log_dirs,
    )


def broker_from_pb(message: pb.Broker) -> BrokerInfo:
    """A broker of the cluster."""
    return BrokerInfo(
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
        log_dirs=tuple(message.log_dirs),
    )


def topic_from_pb(message: pb.Topic) -> TopicInfo:
    """A topic, its partitions by number.

    Raises:
        InvalidRequestError: the topic id is malformed.
    """
    return TopicInfo(
        topic_id=KafkaUuid.parse(message.topic_id),
        name=message.name,
        partitions=tuple(
            PartitionInfo(
                partition=each.partition,
                replicas=tuple(each.replicas),
                isr=tuple(each.isr),
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
            )
            for each in sorted(message.partitions, key=lambda each: each.partition)
        ),
        configs=dict(message.configs),
    )


def update_from_pb(message: pb.WatchClusterMetadataResponse) -> ClusterUpdate:
    """A message of the watch; a heartbeat is a delta without content."""
    if message.HasField("snapshot"):
        snapshot = message.snapshot
        return ClusterUpdate(
            version=message.version,
            is_snapshot=True,
            cluster_id=snapshot.cluster_id,
            brokers=_brokers(snapshot.brokers),
            topics=_topics(snapshot.topics),
            broker_configs={
                key: dict(each.configs) for key, each in snapshot.broker_configs.items()
            },
        )
    delta = message.delta
    return ClusterUpdate(
        version=message.version,
        brokers=_brokers(delta.brokers),
        topics=_topics(delta.topics),
        deleted_topic_ids=tuple(map(KafkaUuid.parse, delta.deleted_topic_ids)),
        broker_configs={key: dict(each.configs) for key, each in delta.broker_configs.items()},
    )


def new_topic_to_pb(topic: NewTopic) -> pb.NewTopic:
    """A topic to create."""
    return pb.NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.ReplicaAssignment(partition=partition, replicas=replicas)
            for partition, replicas in sorted(topic.assignments.items())
        ],
        configs=dict(topic.configs),
    )


def new_partitions_to_pb(topic: NewPartitions) -> pb.NewPartitions:
    """Partitions to add; assignments are numbered from the first new one on."""
    first = topic.total_count - len(topic.assignments)
    return pb.NewPartitions(
        name=topic.name,
        total_count=topic.total_count,
        assignments=[
            pb.ReplicaAssignment(partition=first + place, replicas=replicas)
            for place, replicas in enumerate(topic.assignments)
        ],
    )


def topic_result_from_pb(message: pb.TopicResult) -> TopicResult:
    """The outcome for a topic; a reason this version does not know is INTERNAL."""
    reason = None
    if message.error_reason:
        known = ErrorReason.__members__
        reason = known.get(message.error_reason, ErrorReason.INTERNAL)
    return TopicResult(
        name=message.name,
        topic_id=KafkaUuid.parse(message.topic_id) if message.topic_id else None,
        reason=reason,
        message=message.error_message or None,
        topic=topic_from_pb(message.topic) if message.HasField("topic") else None,
    )


def config_change_to_pb(change: ConfigChange) -> pb.ConfigChange:
    """Change of one setting."""
    return pb.ConfigChange(
        key=change.key, value=change.value, operation=_OPERATIONS[change.operation]
    )


def group_offset_to_pb(offset: GroupOffset) -> pb.GroupOffset:
    """A committed offset."""
    return pb.GroupOffset(
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp_ms=offset.commit_timestamp_ms,
    )


def group_offset_from_pb(message: pb.GroupOffset) -> GroupOffset:
    """A committed offset."""
    return GroupOffset(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp_ms,
    )


def coordination_to_pb(coordination: Coordination) -> pb.GroupCoordinator:
    """By what this broker coordinates a group."""
    return pb.GroupCoordinator(
        broker_id=coordination.broker_id,
        broker_epoch=coordination.broker_epoch,
        cluster_version=coordination.cluster_version,
    )


def _brokers(messages: Iterable[pb.Broker]) -> tuple[BrokerInfo, ...]:
    return tuple(map(broker_from_pb, messages))


def _topics(messages: Iterable[pb.Topic]) -> tuple[TopicInfo, ...]:
    return tuple(map(topic_from_pb, messages))
