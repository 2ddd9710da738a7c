"""Topics: created, deleted, given more partitions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aquifer_core.errors import (
    AlreadyExistsError,
    AquiferError,
    ErrorReason,
    InvalidRequestError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_core.ports import Clock
from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_log import ClusterTransaction
from aquifer_metadata.adapters.postgres.cluster_rows import (
    insert_partitions,
    load_brokers,
    load_topics,
    to_uuid,
)
from aquifer_metadata.adapters.postgres.database import Database, Work
from aquifer_metadata.adapters.postgres.remote_log_deletions import mark_topic
from aquifer_metadata.adapters.postgres.tables import group_offset, topic, topic_partition
from aquifer_metadata.domain import placement
from aquifer_metadata.domain.cluster import (
    NO_LEADER,
    NewPartitions,
    NewTopic,
    Partition,
    Topic,
    TopicResult,
    TopicResults,
)
from aquifer_metadata.domain.topic_config import REMOTE_STORAGE_ENABLE, check_topic_configs
from aquifer_metadata.domain.topic_names import check_topic_name, collision_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What a new topic gets when its creator does not say.

    Attributes:
        max_partitions: most partitions of one topic.
    """

    num_partitions: int = 1
    replication_factor: int = 1
    max_partitions: int = 10_000


class SqlTopicStore:
    """Implements `TopicStore`."""

    def __init__(
        self,
        database: Database,
        signal: ChangeSignal,
        defaults: TopicDefaults,
        *,
        clock: Clock,
        trace_id: Callable[[], str],
    ) -> None:
        self._database = database
        self._signal = signal
        self._defaults = defaults
        self._clock = clock
        self._trace_id = trace_id

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> TopicResults:
        """See `TopicStore.create`."""

        async def work(connection: AsyncConnection) -> TopicResults:
            changes = await cluster_log.begin(connection)
            results = [await self._created(changes, new, validate_only) for new in topics]
            return TopicResults(results=tuple(results), version=await changes.finish())

        return await self._write(work)

    async def delete(self, names: Sequence[str], topic_ids: Sequence[KafkaUuid]) -> TopicResults:
        """See `TopicStore.delete`."""

        async def work(connection: AsyncConnection) -> TopicResults:
            changes = await cluster_log.begin(connection)
            results = [await self._deleted(changes, name=name) for name in names]
            results += [await self._deleted(changes, topic_id=topic_id) for topic_id in topic_ids]
            return TopicResults(results=tuple(results), version=await changes.finish())

        return await self._write(work)

    async def add_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> TopicResults:
        """See `TopicStore.add_partitions`."""

        async def work(connection: AsyncConnection) -> TopicResults:
            changes = await cluster_log.begin(connection)
            results = [await self._grown(changes, new, validate_only) for new in topics]
            return TopicResults(results=tuple(results), version=await changes.finish())

        return await self._write(work)

    async def _write(self, work: Work[TopicResults]) -> TopicResults:
        results = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return results

    async def _created(
        self, changes: ClusterTransaction, new: NewTopic, validate_only: bool
    ) -> TopicResult:
        try:
            check_topic_name(new.name)
            check_topic_configs(new.configs)
            await self._refuse_existing(changes.connection, new.name)
            replicas = await self._replicas_of_new(changes.connection, new)
            partitions = await _led(changes.connection, replicas)
        except AquiferError as error:
            return TopicResult(name=new.name, error=error, topic_id=_existing_id(error))
        made = Topic(
            topic_id=KafkaUuid.ZERO if validate_only else KafkaUuid.random(),
            name=new.name,
            partitions=partitions,
            configs=dict(new.configs),
        )
        if not validate_only:
            await _insert_topic(changes, made)
        return TopicResult(name=new.name, topic_id=made.topic_id, topic=made)

    async def _refuse_existing(self, connection: AsyncConnection, name: str) -> None:
        query = select(topic.c.topic_id, topic.c.name).where(
            topic.c.collision_name == collision_name(name)
        )
        found = (await connection.execute(query)).one_or_none()
        if found is None:
            return
        if found.name == name:
            raise AlreadyExistsError(
                f"topic {name!r} exists",
                metadata={"topic": name, "topicId": str(KafkaUuid(found.topic_id.bytes))},
            )
        raise InvalidRequestError(
            f"topic {name!r} differs from {found.name!r} only in '.' and '_', which collide in metrics",
            reason=ErrorReason.INVALID_TOPIC,
            metadata={"topic": name},
        )

    async def _replicas_of_new(
        self, connection: AsyncConnection, new: NewTopic
    ) -> dict[int, tuple[int, ...]]:
        if new.assignments:
            if new.num_partitions not in (-1, len(new.assignments)):
                raise self._partitions_refused(new.name, "the count contradicts the assignments")
            known = frozenset(known.broker_id for known in await load_brokers(connection))
            placement.check_assignments(new.assignments, first_partition=0, known=known)
            return dict(new.assignments)
        count = self._defaults.num_partitions if new.num_partitions == -1 else new.num_partitions
        if not 0 < count <= self._defaults.max_partitions:
            raise self._partitions_refused(
                new.name, f"{count} is not between 1 and {self._defaults.max_partitions}"
            )
        factor = new.replication_factor
        return await _spread(
            connection,
            first_partition=0,
            count=count,
            factor=self._defaults.replication_factor if factor == -1 else factor,
        )

    async def _deleted(
        self,
        changes: ClusterTransaction,
        *,
        name: str = "",
        topic_id: KafkaUuid = KafkaUuid.ZERO,
    ) -> TopicResult:
        query = select(topic.c.topic_id, topic.c.name, topic.c.configs)
        query = query.where(topic.c.name == name if name else topic.c.topic_id == to_uuid(topic_id))
        found = (await changes.connection.execute(query)).one_or_none()
        if found is None:
            return TopicResult(
                name=name,
                topic_id=None if name else topic_id,
                error=_no_topic(name or str(topic_id)),
            )
        connection = changes.connection
        await mark_topic(
            connection,
            found.topic_id,
            found.name,
            tiered=REMOTE_STORAGE_ENABLE in found.configs,
            now_ms=self._clock.now_ms(),
            trace_id=self._trace_id(),
        )
        of_topic = topic_partition.c.topic_id == found.topic_id
        await connection.execute(delete(topic_partition).where(of_topic))
        await connection.execute(delete(topic).where(topic.c.topic_id == found.topic_id))
        await connection.execute(delete(group_offset).where(group_offset.c.topic == found.name))
        changes.deleted_topic_ids.add(found.topic_id)
        return TopicResult(name=found.name, topic_id=KafkaUuid(found.topic_id.bytes))

    async def _grown(
        self, changes: ClusterTransaction, new: NewPartitions, validate_only: bool
    ) -> TopicResult:
        try:
            found = await _topic(changes.connection, topic.c.name == new.name, new.name)
            added = await _led(
                changes.connection, await self._replicas_of_grown(changes.connection, found, new)
            )
        except AquiferError as error:
            return TopicResult(name=new.name, error=error)
        if not validate_only:
            topic_id = to_uuid(found.topic_id)
            await insert_partitions(changes.connection, topic_id, added)
            changes.topic_ids.add(topic_id)
        grown = Topic(
            topic_id=found.topic_id,
            name=found.name,
            partitions=found.partitions + added,
            configs=found.configs,
        )
        return TopicResult(name=new.name, topic_id=found.topic_id, topic=grown)

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
            return await _spread(connection, first_partition=present, count=count, factor=factor)
        if len(new.assignments) != count:
            raise self._partitions_refused(new.name, "the count contradicts the assignments")
        known = frozenset(known.broker_id for known in await load_brokers(connection))
        placement.check_assignments(new.assignments, first_partition=present, known=known)
        return new.assignments

    @staticmethod
    def _partitions_refused(name: str, problem: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"number of partitions of topic {name!r}: {problem}",
            reason=ErrorReason.INVALID_PARTITIONS,
            metadata={"topic": name},
        )


async def _insert_topic(changes: ClusterTransaction, made: Topic) -> None:
    topic_id = to_uuid(made.topic_id)
    await changes.connection.execute(
        insert(topic).values(
            topic_id=topic_id,
            name=made.name,
            collision_name=collision_name(made.name),
            configs=dict(made.configs),
        )
    )
    await insert_partitions(changes.connection, topic_id, made.partitions)
    changes.topic_ids.add(topic_id)


async def _topic(connection: AsyncConnection, condition: ColumnElement[bool], name: str) -> Topic:
    found = await load_topics(connection, condition)
    if not found:
        raise _no_topic(name)
    return found[0]


async def _spread(
    connection: AsyncConnection, *, first_partition: int, count: int, factor: int
) -> dict[int, tuple[int, ...]]:
    brokers = await load_brokers(connection)
    present = await connection.scalar(select(func.count()).select_from(topic_partition))
    return placement.spread(
        [broker for broker in brokers if broker.alive],
        first_partition=first_partition,
        count=count,
        replication_factor=factor,
        start=(present or 0) - first_partition,
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


def _no_topic(name: str) -> RemoteResourceNotFoundError:
    return RemoteResourceNotFoundError(
        f"topic {name!r} does not exist",
        reason=ErrorReason.TOPIC_NOT_FOUND,
        metadata={"topic": name},
    )


def _existing_id(error: AquiferError) -> KafkaUuid | None:
    text = error.metadata.get("topicId")
    return KafkaUuid.parse(text) if text else None
