"""Rows of brokers, topics and partitions <-> domain values."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from aquifer_core.ids import KafkaUuid
from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Text,
    Uuid,
    any_,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import bindparam

from aquifer_metadata.adapters.postgres.tables import broker, topic, topic_partition
from aquifer_metadata.domain.cluster import Broker, Endpoint, Partition, Topic, TopicPartition
from aquifer_metadata.domain.topic_config import UNCLEAN_ELECTION, is_true

PartitionKey = tuple[uuid.UUID, int]

_FEW_TOPICS = 10
_ROWS_OF_A_STEP = 1_000


def to_uuid(value: KafkaUuid) -> uuid.UUID:
    """As PostgreSQL keeps it."""
    return uuid.UUID(bytes=value.raw)


def from_uuid(value: uuid.UUID) -> KafkaUuid:
    """As the domain keeps it."""
    return KafkaUuid(value.bytes)


def has_id_of(column: ColumnElement[uuid.UUID], ids: Iterable[uuid.UUID]) -> ColumnElement[bool]:
    """Whether a column holds one of any number of ids: as single parameters a statement takes 65,535 at most."""
    return column == any_(literal(list(ids), ARRAY(Uuid)))


def names_one_of(
    topic_name: ColumnElement[str],
    partition: ColumnElement[int],
    named: Collection[TopicPartition],
) -> ColumnElement[bool]:
    """Whether columns name one of any number of partitions."""
    topics = literal([each.topic for each in named], ARRAY(Text))
    numbers = literal([each.partition for each in named], ARRAY(Integer))
    return tuple_(topic_name, partition).in_(select(func.unnest(topics), func.unnest(numbers)))


def broker_from_row(row: Row[Any]) -> Broker:
    """A broker."""
    return Broker(
        broker_id=row.broker_id,
        incarnation=row.incarnation,
        endpoints=tuple(Endpoint(**endpoint) for endpoint in row.endpoints),
        rack=row.rack,
        broker_log_address=row.broker_log_address,
        log_dirs=tuple(row.log_dirs),
        broker_epoch=row.broker_epoch,
        alive=row.alive,
    )


def broker_values(value: Broker) -> dict[str, Any]:
    """What a broker says of itself, as columns."""
    return {
        "broker_id": value.broker_id,
        "incarnation": value.incarnation,
        "endpoints": [
            {"listener": endpoint.listener, "host": endpoint.host, "port": endpoint.port}
            for endpoint in value.endpoints
        ],
        "rack": value.rack,
        "broker_log_address": value.broker_log_address,
        "log_dirs": list(value.log_dirs),
    }


def partition_from_row(row: Row[Any]) -> Partition:
    """A partition."""
    return Partition(
        partition=row.partition,
        replicas=tuple(row.replicas),
        isr=tuple(row.isr),
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.partition_epoch,
        target_replicas=tuple(row.target_replicas),
    )


def partition_values(topic_id: uuid.UUID, value: Partition) -> dict[str, Any]:
    """A partition as columns."""
    return {
        "topic_id": topic_id,
        "partition": value.partition,
        "replicas": list(value.replicas),
        "isr": list(value.isr),
        "leader": value.leader,
        "leader_epoch": value.leader_epoch,
        "partition_epoch": value.partition_epoch,
        "target_replicas": list(value.target_replicas),
    }


async def load_brokers(
    connection: AsyncConnection, *conditions: ColumnElement[bool]
) -> tuple[Broker, ...]:
    """Brokers by id."""
    rows = await connection.execute(select(broker).where(*conditions).order_by(broker.c.broker_id))
    return tuple(broker_from_row(row) for row in rows)


async def live_broker_ids(connection: AsyncConnection) -> frozenset[int]:
    """Ids of the brokers that hold a lease."""
    return frozenset(await connection.scalars(select(broker.c.broker_id).where(broker.c.alive)))


async def load_topics(
    connection: AsyncConnection, *conditions: ColumnElement[bool]
) -> tuple[Topic, ...]:
    """Topics that meet conditions on the topic table, by name, with their partitions."""
    topics = (
        await connection.execute(select(topic).where(*conditions).order_by(topic.c.name))
    ).all()
    if not topics:
        return ()
    query = select(topic_partition).order_by(
        topic_partition.c.topic_id, topic_partition.c.partition
    )
    if conditions:
        query = query.where(has_id_of(topic_partition.c.topic_id, [row.topic_id for row in topics]))
    partitions: dict[uuid.UUID, list[Partition]] = defaultdict(list)
    if len(topics) <= _FEW_TOPICS:
        for row in await connection.execute(query):
            partitions[row.topic_id].append(partition_from_row(row))
    else:
        # In steps: the rows of a large cluster at once would stop everything else in this process.
        async for step in (await connection.stream(query)).partitions(_ROWS_OF_A_STEP):
            for row in step:
                partitions[row.topic_id].append(partition_from_row(row))
    return tuple(
        Topic(
            topic_id=from_uuid(row.topic_id),
            name=row.name,
            partitions=tuple(partitions[row.topic_id]),
            configs=row.configs,
        )
        for row in topics
    )


async def load_partitions(
    connection: AsyncConnection, *conditions: ColumnElement[bool]
) -> list[tuple[PartitionKey, Partition, bool]]:
    """Partitions that meet conditions, each with its key and whether its topic allows unclean elections."""
    query = (
        select(topic_partition, topic.c.configs)
        .join(topic, topic.c.topic_id == topic_partition.c.topic_id)
        .where(*conditions)
        .order_by(topic_partition.c.topic_id, topic_partition.c.partition)
    )
    return [
        (
            (row.topic_id, row.partition),
            partition_from_row(row),
            is_true(row.configs, UNCLEAN_ELECTION),
        )
        for row in await connection.execute(query)
    ]


async def insert_partitions(
    connection: AsyncConnection, topic_id: uuid.UUID, partitions: Iterable[Partition]
) -> None:
    """Adds partitions of a topic."""
    await connection.execute(
        insert(topic_partition), [partition_values(topic_id, value) for value in partitions]
    )


async def update_partitions(
    connection: AsyncConnection, changed: Collection[tuple[PartitionKey, Partition]]
) -> None:
    """Writes the changed state of partitions."""
    if not changed:
        return
    statement = (
        update(topic_partition)
        .where(
            topic_partition.c.topic_id == bindparam("of_topic"),
            topic_partition.c.partition == bindparam("of_partition"),
        )
        .values(
            {
                name: bindparam(f"new_{name}")
                for name in (
                    "replicas",
                    "isr",
                    "leader",
                    "leader_epoch",
                    "partition_epoch",
                    "target_replicas",
                )
            }
        )
    )
    await connection.execute(
        statement, [_update_parameters(topic_id, value) for (topic_id, _), value in changed]
    )


def _update_parameters(topic_id: uuid.UUID, value: Partition) -> dict[str, Any]:
    values = partition_values(topic_id, value)
    keys = {"of_topic": values.pop("topic_id"), "of_partition": values.pop("partition")}
    return keys | {f"new_{name}": column for name, column in values.items()}
