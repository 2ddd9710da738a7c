"""The cluster's version and the log of its changes.

Every change of brokers, topics, partitions and settings happens in a transaction that holds the one row of `cluster`, so that
versions follow the order of commits. The log names what changed, not how: a reader takes the state from the tables.
"""

import uuid
from dataclasses import dataclass, field

from aquifer_core.errors import ErrorReason, RemoteStorageUnavailableError
from aquifer_core.ids import KafkaUuid
from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import cluster, cluster_change, producer_id_block

KEPT_VERSIONS = 10_000
"""Changes that a watcher can catch up with; one that is further behind gets a snapshot."""

_PRUNE_EVERY = 100
_ROW = 1


@dataclass(slots=True)
class ClusterTransaction:
    """What one transaction changes; `version` is the one before it."""

    connection: AsyncConnection
    cluster_id: str
    version: int
    broker_ids: set[int] = field(default_factory=set)
    topic_ids: set[uuid.UUID] = field(default_factory=set)
    deleted_topic_ids: set[uuid.UUID] = field(default_factory=set)
    broker_configs: set[str] = field(default_factory=set)

    async def finish(self) -> int:
        """Logs the changes and returns the version after them; without changes it stays as it was."""
        if not (self.broker_ids or self.topic_ids or self.deleted_topic_ids or self.broker_configs):
            return self.version
        version = self.version + 1
        await self.connection.execute(
            update(cluster).where(cluster.c.id == _ROW).values(version=version)
        )
        await self.connection.execute(
            insert(cluster_change).values(
                version=version,
                broker_ids=sorted(self.broker_ids),
                topic_ids=sorted(self.topic_ids - self.deleted_topic_ids),
                deleted_topic_ids=sorted(self.deleted_topic_ids),
                broker_configs=sorted(self.broker_configs),
            )
        )
        if version % _PRUNE_EVERY == 0:
            await self.connection.execute(
                delete(cluster_change).where(cluster_change.c.version <= version - KEPT_VERSIONS)
            )
        return version


async def begin(connection: AsyncConnection) -> ClusterTransaction:
    """Takes the cluster's row: from here on this transaction is alone with the cluster's state."""
    query = select(cluster.c.cluster_id, cluster.c.version).where(cluster.c.id == _ROW)
    row = (await connection.execute(query.with_for_update())).one_or_none()
    if row is None:
        raise RemoteStorageUnavailableError(
            "the cluster has not been initialized yet",
            reason=ErrorReason.NOT_READY,
            retry_after_ms=500,
        )
    return ClusterTransaction(connection, row.cluster_id, row.version)


async def current_version(connection: AsyncConnection) -> int:
    """Version of the cluster metadata; 0 before the cluster is initialized."""
    return await connection.scalar(select(cluster.c.version)) or 0


async def initialize_cluster(database: Database) -> None:
    """Gives the cluster its id, once; idempotent."""

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(
            insert(cluster)
            .values(id=_ROW, cluster_id=str(KafkaUuid.random()), version=1)
            .on_conflict_do_nothing()
        )
        await connection.execute(
            insert(producer_id_block)
            .values(id=_ROW, next_producer_id=1000)
            .on_conflict_do_nothing()
        )

    await database.write(work)
