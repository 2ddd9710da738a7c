"""Cluster values <-> protobuf messages."""

from collections.abc import Iterable

from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.convert import uuid_from_pb

from aquifer_metadata.domain import cluster


def broker_to_pb(value: cluster.Broker) -> pb.Broker:
    """A broker."""
    return pb.Broker(
        broker_id=value.broker_id,
        incarnation=value.incarnation,
        broker_epoch=value.broker_epoch,
        endpoints=[
            pb.Endpoint(listener=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in value.endpoints
        ],
        rack=value.rack,
        broker_log_address=value.broker_log_address,
        alive=value.alive,
        log_dirs=value.log_dirs,
    )


def broker_from_pb(message: pb.Broker) -> cluster.Broker:
    """What a broker says of itself.

    Raises:
        InvalidRequestError: the id is negative or the incarnation malformed.
    """
    if message.broker_id < 0:
        raise InvalidRequestError(f"broker id {message.broker_id} is negative")
    return cluster.Broker(
        broker_id=message.broker_id,
        incarnation=str(uuid_from_pb(message.incarnation, "broker.incarnation")),
        endpoints=tuple(
            cluster.Endpoint(listener=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in message.endpoints
        ),
        rack=message.rack,
        broker_log_address=message.broker_log_address,
        log_dirs=tuple(message.log_dirs),
    )


def partition_to_pb(value: cluster.Partition) -> pb.Partition:
    """A partition."""
    return pb.Partition(
        partition=value.partition,
        replicas=value.replicas,
        isr=value.isr,
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        partition_epoch=value.partition_epoch,
    )


def topic_to_pb(value: cluster.Topic) -> pb.Topic:
    """A topic."""
    return pb.Topic(
        topic_id=_id_to_pb(value.topic_id),
        name=value.name,
        partitions=[partition_to_pb(partition) for partition in value.partitions],
        configs=value.configs,
    )


def topic_result_to_pb(value: cluster.TopicResult) -> pb.TopicResult:
    """Outcome for one topic."""
    error = value.error
    return pb.TopicResult(
        name=value.name,
        topic_id=_id_to_pb(value.topic_id),
        error_reason="" if error is None else error.reason.value,
        error_message="" if error is None else error.message,
        topic=None if value.topic is None else topic_to_pb(value.topic),
    )


def new_topic_from_pb(message: pb.NewTopic) -> cluster.NewTopic:
    """A topic to create; absent counts stand for the defaults.

    Raises:
        InvalidRequestError: a topic id is given and malformed.
    """
    return cluster.NewTopic(
        name=message.name,
        num_partitions=message.num_partitions,
        replication_factor=message.replication_factor,
        assignments=_assignments_from_pb(message.assignments),
        configs=dict(message.configs),
        topic_id=(
            uuid_from_pb(message.topic_id, "topic_id") if message.HasField("topic_id") else None
        ),
    )


def new_partitions_from_pb(message: pb.NewPartitions) -> cluster.NewPartitions:
    """Partitions to add."""
    return cluster.NewPartitions(
        name=message.name,
        total_count=message.total_count,
        assignments=_assignments_from_pb(message.assignments),
    )


def config_resource_from_pb(kind: int, name: str) -> cluster.ConfigResource:
    """What settings belong to.

    Raises:
        InvalidRequestError: the kind is unspecified or unknown, or a topic has no name.
    """
    kinds = {
        pb.CONFIG_RESOURCE_TYPE_TOPIC: cluster.ConfigResourceType.TOPIC,
        pb.CONFIG_RESOURCE_TYPE_BROKER: cluster.ConfigResourceType.BROKER,
    }
    found = kinds.get(pb.ConfigResourceType.ValueType(kind))
    if found is None:
        raise InvalidRequestError(f"resource_type has the unknown value {kind}")
    return cluster.ConfigResource(type=found, name=name)


def config_change_from_pb(message: pb.ConfigChange) -> cluster.ConfigChange:
    """A change of one setting.

    Raises:
        InvalidRequestError: the operation is unspecified or unknown.
    """
    operations = {
        pb.CONFIG_OPERATION_SET: cluster.ConfigOperation.SET,
        pb.CONFIG_OPERATION_DELETE: cluster.ConfigOperation.DELETE,
        pb.CONFIG_OPERATION_APPEND: cluster.ConfigOperation.APPEND,
        pb.CONFIG_OPERATION_SUBTRACT: cluster.ConfigOperation.SUBTRACT,
    }
    operation = operations.get(message.operation)
    if operation is None:
        raise InvalidRequestError(f"operation of {message.key!r} is not given")
    value = message.value if message.HasField("value") else None
    return cluster.ConfigChange(key=message.key, value=value, operation=operation)


def isr_change_from_pb(message: pb.AlterPartitionRequest) -> cluster.IsrChange:
    """A leader's wish for other in-sync replicas.

    Raises:
        InvalidRequestError: the topic id is malformed.
    """
    return cluster.IsrChange(
        topic_id=uuid_from_pb(message.topic_id, "topic_id"),
        partition=message.partition,
        broker_id=message.broker_id,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        isr=tuple(message.isr),
    )


def topic_partitions_from_pb(
    messages: Iterable[pb.TopicPartition],
) -> tuple[cluster.TopicPartition, ...]:
    """Partitions as clients name them."""
    return tuple(
        cluster.TopicPartition(topic=message.topic, partition=message.partition)
        for message in messages
    )


def group_offset_to_pb(value: cluster.GroupOffset) -> pb.GroupOffset:
    """An offset of a group."""
    return pb.GroupOffset(
        topic=value.topic,
        partition=value.partition,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
    )


def group_offset_from_pb(message: pb.GroupOffset) -> cluster.GroupOffset:
    """An offset of a group."""
    return cluster.GroupOffset(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        leader_epoch=message.leader_epoch,
        metadata=message.metadata,
        commit_timestamp_ms=message.commit_timestamp_ms,
    )


def group_coordinator_from_pb(
    request: pb.CommitOffsetsRequest | pb.DeleteOffsetsRequest,
) -> cluster.GroupCoordinator | None:
    """Who asks for a write of a group's offsets; None: nobody in particular."""
    if not request.HasField("coordinator"):
        return None
    said = request.coordinator
    return cluster.GroupCoordinator(
        broker_id=said.broker_id,
        broker_epoch=said.broker_epoch,
        cluster_version=said.cluster_version,
    )


def transaction_state_to_pb(value: cluster.TransactionState) -> pb.TransactionState:
    """State of a transactional id."""
    return pb.TransactionState(
        transactional_id=value.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        state=value.state,
        partitions=[
            pb.TopicPartition(topic=named.topic, partition=named.partition)
            for named in value.partitions
        ],
        start_timestamp_ms=value.start_timestamp_ms,
        version=value.version,
    )


def transaction_state_from_pb(message: pb.TransactionState) -> cluster.TransactionState:
    """State of a transactional id.

    Raises:
        InvalidRequestError: the transactional id is empty.
    """
    if not message.transactional_id:
        raise InvalidRequestError("state.transactional_id is missing")
    return cluster.TransactionState(
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.timeout_ms,
        state=message.state,
        partitions=topic_partitions_from_pb(message.partitions),
        start_timestamp_ms=message.start_timestamp_ms,
        version=message.version,
    )


def _assignments_from_pb(messages: Iterable[pb.ReplicaAssignment]) -> dict[int, tuple[int, ...]]:
    return {message.partition: tuple(message.replicas) for message in messages}


def _id_to_pb(topic_id: KafkaUuid | None) -> str:
    """Empty for a topic that does not exist, also for one that was only checked."""
    return "" if topic_id is None or topic_id == KafkaUuid.ZERO else str(topic_id)
