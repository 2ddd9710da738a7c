"""What new partitions begin with: how many there are, on which brokers, led by whom."""

from collections.abc import Mapping
from dataclasses import dataclass

from aquifer_core.errors import ErrorReason, InvalidRequestError
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.cluster_rows import load_brokers
from aquifer_metadata.adapters.postgres.tables import topic_partition
from aquifer_metadata.domain import placement
from aquifer_metadata.domain.cluster import NO_LEADER, NewPartitions, NewTopic, Partition, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What a new topic gets when its creator does not say.

    Attributes:
        max_partitions: most partitions of one topic.
        max_replication_factor: most replicas of a partition, see `placement.MAX_REPLICATION_FACTOR`.
    """

    num_partitions: int = 1
    replication_factor: int = 1
    max_partitions: int = 10_000
    max_replication_factor: int = placement.MAX_REPLICATION_FACTOR


class PartitionMaker:
    """Makes the partitions of new and growing topics; writes nothing."""

    def __init__(self, defaults: TopicDefaults) -> None:
        self._defaults = defaults

    async def of_new(self, connection: AsyncConnection, new: NewTopic) -> tuple[Partition, ...]:
        """All partitions of a new topic.

        Raises:
            InvalidRequestError: they cannot be (INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR).
        """
        return await _led(connection, await self._replicas_of_new(connection, new))

    async def of_grown(
        self, connection: AsyncConnection, found: Topic, new: NewPartitions
    ) -> tuple[Partition, ...]:
        """The partitions that a topic gets in addition.

        Raises:
            InvalidRequestError: they cannot be (INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR).
        """
        return await _led(connection, await self._replicas_of_grown(connection, found, new))

    async def _replicas_of_new(
        self, connection: AsyncConnection, new: NewTopic
    ) -> dict[int, tuple[int, ...]]:
        if new.assignments:
            if new.num_partitions not in (-1, len(new.assignments)):
                raise self._partitions_refused(new.name, "the count contradicts the assignments")
            known = frozenset(known.broker_id for known in await load_brokers(connection))
            placement.check_assignments(
                new.assignments,
                first_partition=0,
                known=known,
                most=self._defaults.max_replication_factor,
            )
            return dict(new.assignments)
        count = self._defaults.num_partitions if new.num_partitions == -1 else new.num_partitions
        if not 0 < count <= self._defaults.max_partitions:
            raise self._partitions_refused(
                new.name, f"{count} is not between 1 and {self._defaults.max_partitions}"
            )
        factor = new.replication_factor
        return await self._spread(
            connection,
            first_partition=0,
            count=count,
            factor=self._defaults.replication_factor if factor == -1 else factor,
        )

    async def _replicas_of_grown(
        self, connection: AsyncConnection, found: Topic, new: NewPartitions
    ) -> Mapping[int, tuple[int, ...]]:
        present = len(found.partitions)
        count = new.total_count - present
        if count <= 0 or new.total_count > self._defaults.max_partitions:
            raise self._partitions_refused(
                new.name,
                f"{new.total_count} is not between {present + 1} and {self._defaults.max_partitions}",
            )
        if not new.assignments:
            factor = len(found.partitions[0].replicas)
            return await self._spread(
                connection, first_partition=present, count=count, factor=factor
            )
        if len(new.assignments) != count:
            raise self._partitions_refused(new.name, "the count contradicts the assignments")
        known = frozenset(known.broker_id for known in await load_brokers(connection))
        placement.check_assignments(
            new.assignments,
            first_partition=present,
            known=known,
            most=self._defaults.max_replication_factor,
        )
        return new.assignments

    async def _spread(
        self, connection: AsyncConnection, *, first_partition: int, count: int, factor: int
    ) -> dict[int, tuple[int, ...]]:
        placement.check_replica_count(factor, self._defaults.max_replication_factor)
        brokers = await load_brokers(connection)
        present = await connection.scalar(select(func.count()).select_from(topic_partition))
        return placement.spread(
            [broker for broker in brokers if broker.alive],
            first_partition=first_partition,
            count=count,
            replication_factor=factor,
            start=(present or 0) - first_partition,
        )

    @staticmethod
    def _partitions_refused(name: str, problem: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"number of partitions of topic {name!r}: {problem}",
            reason=ErrorReason.INVALID_PARTITIONS,
            metadata={"topic": name},
        )


async def _led(
    connection: AsyncConnection, replicas: Mapping[int, tuple[int, ...]]
) -> tuple[Partition, ...]:
    live = frozenset(known.broker_id for known in await load_brokers(connection) if known.alive)
    return tuple(_new_partition(number, replicas[number], live) for number in sorted(replicas))


def _new_partition(number: int, replicas: tuple[int, ...], live: frozenset[int]) -> Partition:
    """Replicas that live are in sync from the start; when none does, the first live one will be."""
    isr = tuple(member for member in replicas if member in live)
    return Partition(
        partition=number,
        replicas=replicas,
        isr=isr or replicas,
        leader=isr[0] if isr else NO_LEADER,
    )
