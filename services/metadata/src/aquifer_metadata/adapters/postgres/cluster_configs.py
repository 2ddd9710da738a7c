"""Settings of topics and brokers."""

from collections.abc import Mapping, Sequence

from aquifer_core.errors import ErrorReason, InvalidRequestError, RemoteResourceNotFoundError
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_log import ClusterTransaction
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import broker_config, topic
from aquifer_metadata.domain.cluster import ConfigChange, ConfigResource, ConfigResourceType
from aquifer_metadata.domain.topic_config import apply_changes, check_topic_configs


class SqlConfigStore:
    """Implements `ConfigStore`."""

    def __init__(self, database: Database, signal: ChangeSignal) -> None:
        self._database = database
        self._signal = signal

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
            if not validate_only and configs != before:
                await _write(transaction, resource, configs)
            return configs, await transaction.finish()

        altered = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return altered

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
