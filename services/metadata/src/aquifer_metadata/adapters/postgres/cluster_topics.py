"""Topics: created, deleted, given more partitions."""

from collections.abc import Callable, Sequence

from aquifer_core.errors import (
    AlreadyExistsError,
    AquiferError,
    ErrorReason,
    InvalidRequestError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_core.ports import Clock
from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log, known_topics
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_log import ClusterTransaction
from aquifer_metadata.adapters.postgres.cluster_rows import (
    insert_partitions,
    load_topics,
    to_uuid,
)
from aquifer_metadata.adapters.postgres.database import Database, Work
from aquifer_metadata.adapters.postgres.new_partitions import PartitionMaker, TopicDefaults
from aquifer_metadata.adapters.postgres.remote_log_deletions import mark_topic
from aquifer_metadata.adapters.postgres.tables import group_offset, topic, topic_partition
from aquifer_metadata.domain.cluster import (
    NewPartitions,
    NewTopic,
    Topic,
    TopicResult,
    TopicResults,
)
from aquifer_metadata.domain.topic_config import REMOTE_STORAGE_ENABLE, check_topic_configs
from aquifer_metadata.domain.topic_names import check_topic_name, collision_name


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
        self._maker = PartitionMaker(defaults)
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
            partitions = await self._maker.of_new(changes.connection, new)
            if new.topic_id is not None:
                partitions = await known_topics.attached(changes.connection, new, partitions)
        except AquiferError as error:
            return TopicResult(name=new.name, error=error, topic_id=_existing_id(error))
        made = Topic(
            topic_id=KafkaUuid.ZERO if validate_only else new.topic_id or KafkaUuid.random(),
            name=new.name,
            partitions=partitions,
            configs=dict(new.configs),
        )
        if not validate_only:
            await _insert_topic(changes, made)
            await self._take_deletion_back(changes, new)
        return TopicResult(name=new.name, topic_id=made.topic_id, topic=made)

    async def _take_deletion_back(self, changes: ClusterTransaction, new: NewTopic) -> None:
        if new.topic_id is not None:
            await known_topics.take_deletion_back(
                changes.connection,
                new.topic_id,
                now_ms=self._clock.now_ms(),
                trace_id=self._trace_id(),
            )

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
            added = await self._maker.of_grown(changes.connection, found, new)
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


def _no_topic(name: str) -> RemoteResourceNotFoundError:
    return RemoteResourceNotFoundError(
        f"topic {name!r} does not exist",
        reason=ErrorReason.TOPIC_NOT_FOUND,
        metadata={"topic": name},
    )


def _existing_id(error: AquiferError) -> KafkaUuid | None:
    text = error.metadata.get("topicId")
    return KafkaUuid.parse(text) if text else None
