"""Partitions, lineages and isolation levels."""

from collections.abc import Iterable, Mapping

from aquifer.common.v1 import partition_pb2 as pb
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.segment import IsolationLevel

from aquifer_rpc.convert._field import missing


def uuid_from_pb(text: str, field: str = "id") -> KafkaUuid:
    """A uuid from its 22-character text.

    Raises:
        InvalidRequestError: absent or malformed; names the field.
    """
    if not text:
        raise missing(field)
    try:
        return KafkaUuid.parse(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{field}: {error.message}", metadata={"field": field}) from error


def tip_to_pb(tip: TopicIdPartition) -> pb.TopicIdPartition:
    """A partition to its message."""
    return pb.TopicIdPartition(topic_id=str(tip.topic_id), topic=tip.topic, partition=tip.partition)


def tip_from_pb(
    message: pb.TopicIdPartition, field: str = "topic_id_partition"
) -> TopicIdPartition:
    """A partition from its message.

    Raises:
        InvalidRequestError: no or a malformed topic id, or a negative partition.
    """
    return TopicIdPartition(
        uuid_from_pb(message.topic_id, f"{field}.topic_id"), message.topic, message.partition
    )


def lineage_to_pb(lineage: Mapping[int, int]) -> list[pb.LeaderEpochEntry]:
    """Leader epoch -> start offset, to entries in ascending order."""
    return [
        pb.LeaderEpochEntry(epoch=epoch, start_offset=offset)
        for epoch, offset in sorted(lineage.items())
    ]


def lineage_from_pb(entries: Iterable[pb.LeaderEpochEntry]) -> dict[int, int]:
    """Entries to leader epoch -> start offset, ascending."""
    return dict(sorted((entry.epoch, entry.start_offset) for entry in entries))


def isolation_to_pb(level: IsolationLevel) -> pb.IsolationLevel.ValueType:
    """An isolation level to its enum."""
    return pb.IsolationLevel.ValueType(level + 1)


def isolation_from_pb(number: int, field: str = "isolation_level") -> IsolationLevel:
    """An isolation level from its enum; unspecified is READ_UNCOMMITTED, as the contract says.

    Raises:
        InvalidRequestError: unknown value.
    """
    if number > len(IsolationLevel):
        raise InvalidRequestError(
            f"{field} has the unknown value {number}", metadata={"field": field}
        )
    return IsolationLevel(max(number - 1, 0))
