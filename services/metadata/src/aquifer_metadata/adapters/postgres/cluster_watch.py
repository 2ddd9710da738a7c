"""Changes of the cluster as they happen."""

from collections.abc import AsyncIterator

from aquifer_core.ports import Clock
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_rows import (
    from_uuid,
    has_id_of,
    load_brokers,
    load_topics,
)
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import (
    broker,
    broker_config,
    cluster,
    cluster_change,
    topic,
)
from aquifer_metadata.domain.cluster import ClusterChange, ClusterDelta, ClusterSnapshot

__all__ = ["SqlClusterWatch"]

_MAX_VERSIONS_PER_DELTA = 1000


class SqlClusterWatch:
    """Implements `ClusterWatch`. Versions a watcher missed arrive as one delta that holds their sum."""

    def __init__(
        self,
        database: Database,
        signal: ChangeSignal,
        clock: Clock,
        *,
        poll_s: float = 0.2,
        heartbeat_s: float = 5.0,
    ) -> None:
        self._database = database
        self._signal = signal
        self._clock = clock
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s

    async def changes(self, from_version: int) -> AsyncIterator[ClusterChange]:
        """See `ClusterWatch.changes`."""
        version = from_version
        last_sent_s = self._clock.monotonic_s()
        with self._signal.subscribe(CLUSTER) as subscription:
            while True:
                change = await self._next(version)
                if change is not None:
                    yield change
                    version = change.version
                    last_sent_s = self._clock.monotonic_s()
                    continue
                if self._clock.monotonic_s() - last_sent_s >= self._heartbeat_s:
                    yield ClusterChange(version=version)
                    last_sent_s = self._clock.monotonic_s()
                await subscription.wait(self._poll_s)

    async def _next(self, version: int) -> ClusterChange | None:
        current = await self._database.read(cluster_log.current_version)
        if current == version:
            return None

        async def work(connection: AsyncConnection) -> ClusterChange:
            current = await cluster_log.current_version(connection)
            content = await _delta(connection, version, current)
            return ClusterChange(version=current, content=content or await _snapshot(connection))

        return await self._database.snapshot(work)


async def _snapshot(connection: AsyncConnection) -> ClusterSnapshot:
    configs = await connection.execute(select(broker_config))
    return ClusterSnapshot(
        cluster_id=await connection.scalar(select(cluster.c.cluster_id)) or "",
        brokers=await load_brokers(connection),
        topics=await load_topics(connection),
        broker_configs={row.name: row.configs for row in configs},
    )


async def _delta(connection: AsyncConnection, after: int, until: int) -> ClusterDelta | None:
    """What changed in (after, until]; None when the log does not reach back that far, or it is too much."""
    if not 0 < after < until <= after + _MAX_VERSIONS_PER_DELTA:
        return None
    logged = (
        await connection.execute(select(cluster_change).where(cluster_change.c.version > after))
    ).all()
    if len(logged) != until - after:
        return None
    broker_ids = {broker_id for row in logged for broker_id in row.broker_ids}
    topic_ids = {topic_id for row in logged for topic_id in row.topic_ids}
    deleted = {topic_id for row in logged for topic_id in row.deleted_topic_ids}
    names = {name for row in logged for name in row.broker_configs}
    configs = await connection.execute(select(broker_config).where(broker_config.c.name.in_(names)))
    found = {row.name: row.configs for row in configs}
    return ClusterDelta(
        brokers=await load_brokers(connection, broker.c.broker_id.in_(broker_ids)),
        topics=await load_topics(connection, has_id_of(topic.c.topic_id, topic_ids - deleted)),
        deleted_topic_ids=tuple(from_uuid(topic_id) for topic_id in sorted(deleted)),
        broker_configs={name: found.get(name, {}) for name in names},
    )
