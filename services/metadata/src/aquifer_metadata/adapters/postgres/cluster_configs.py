"""Settings of topics and brokers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from aquifer_core.errors import ErrorReason, InvalidRequestError, RemoteResourceNotFoundError
from aquifer_core.ports import Clock
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log, tiering_switch
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_log import ClusterTransaction
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_deletions import mark_topic
from aquifer_metadata.adapters.postgres.tables import broker_config, topic
from aquifer_metadata.domain.cluster import ConfigChange, ConfigResource, ConfigResourceType
from aquifer_metadata.domain.topic_config import (
    REMOTE_STORAGE_ENABLE,
    apply_changes,
    check_topic_configs,
    is_true,
)


class _Origin(TypedDict):
    now_ms: int
    trace_id: str


class SqlConfigStore:
    """Implements `ConfigStore`."""

    def __init__(
        self,
        database: Database,
        signal: ChangeSignal,
        *,
        clock: Clock,
        trace_id: Callable[[], str],
    ) -> None:
        self._database = database
        self._signal = signal
        self._clock = clock
        self._trace_id = trace_id

    async def alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> tuple[Mapping[str, str], int]:
        """See `ConfigStore.alter`."""

        async def work(connection: AsyncConnection) -> tuple[Mapping[str, str], int]:
            transaction = await cluster_log.begin(connection)
            before = await _read(connection, resource)
            configs = apply_changes(before, changes)
            if resource.type is ConfigResourceType.TOPIC:
                check_topic_configs(configs, before=before)
                await self._switch_tiering(
                    connection,
                    resource.name,
                    changes,
                    before=before,
                    after=configs,
                    validate_only=validate_only,
                )
            if not validate_only and configs != before:
                await _write(transaction, resource, configs)
            return configs, await transaction.finish()

        altered = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return altered

    async def _switch_tiering(
        self,
        connection: AsyncConnection,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        before: Mapping[str, str],
        after: Mapping[str, str],
        validate_only: bool,
    ) -> None:
        """Marks or reopens the remote partitions; also when the setting was true already, since its data may be gone."""
        if all(change.key != REMOTE_STORAGE_ENABLE for change in changes):
            return
        topic_id = await connection.scalar(select(topic.c.topic_id).where(topic.c.name == name))
        assert topic_id is not None
        origin: _Origin = {"now_ms": self._clock.now_ms(), "trace_id": self._trace_id()}
        if is_true(after, REMOTE_STORAGE_ENABLE):
            finished = await tiering_switch.check_deletions_finished(connection, topic_id)
            if finished and not validate_only:
                await tiering_switch.reopen(connection, topic_id, **origin)
        elif is_true(before, REMOTE_STORAGE_ENABLE) and not validate_only:
            await mark_topic(
                connection, topic_id, name, tiered=True, reason="tiering disabled", **origin
            )

    async def describe(self, resource: ConfigResource) -> Mapping[str, str]:
        """See `ConfigStore.describe`."""
        return await self._database.read(lambda connection: _read(connection, resource))


async def _read(connection: AsyncConnection, resource: ConfigResource) -> Mapping[str, str]:
    if resource.type is ConfigResourceType.BROKER:
        _check_broker_name(resource.name)
        query = select(broker_config.c.configs).where(broker_config.c.name == resource.name)
        return await connection.scalar(query) or {}
    configs: Mapping[str, str] | None = await connection.scalar(
        select(topic.c.configs).where(topic.c.name == resource.name)
    )
    if configs is None:
        raise RemoteResourceNotFoundError(
            f"topic {resource.name!r} does not exist",
            reason=ErrorReason.TOPIC_NOT_FOUND,
            metadata={"topic": resource.name},
        )
    return configs


async def _write(
    transaction: ClusterTransaction, resource: ConfigResource, configs: Mapping[str, str]
) -> None:
    connection = transaction.connection
    if resource.type is ConfigResourceType.BROKER:
        statement = insert(broker_config).values(name=resource.name, configs=configs)
        await connection.execute(
            statement.on_conflict_do_update(
                index_elements=[broker_config.c.name], set_={"configs": configs}
            )
        )
        transaction.broker_configs.add(resource.name)
        return
    topic_id = await connection.scalar(
        update(topic)
        .where(topic.c.name == resource.name)
        .values(configs=configs)
        .returning(topic.c.topic_id)
    )
    if topic_id is not None:
        transaction.topic_ids.add(topic_id)


def _check_broker_name(name: str) -> None:
    if name and not name.isdecimal():
        raise InvalidRequestError(f"{name!r} is no broker id; give a number, or nothing for all")
