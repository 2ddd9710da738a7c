"""Leaders, in-sync replicas and replicas of partitions."""

from collections.abc import Mapping, Sequence
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    NotLeaderError,
    RemoteResourceNotFoundError,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_log import ClusterTransaction
from aquifer_metadata.adapters.postgres.cluster_rows import (
    PartitionKey,
    live_broker_ids,
    load_brokers,
    load_partitions,
    names_one_of,
    to_uuid,
    update_partitions,
)
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import topic, topic_partition
from aquifer_metadata.domain import leadership, placement
from aquifer_metadata.domain.cluster import IsrChange, Partition, TopicPartition

_NAMES_TOLD: Final = 100
"""An error travels in headers, which are limited."""

_Changed = list[tuple[PartitionKey, Partition]]


class SqlPartitionStore:
    """Implements `PartitionStore`."""

    def __init__(
        self,
        database: Database,
        signal: ChangeSignal,
        *,
        max_replication_factor: int = placement.MAX_REPLICATION_FACTOR,
    ) -> None:
        self._database = database
        self._signal = signal
        self._max_replication_factor = max_replication_factor

    async def change_isr(self, change: IsrChange) -> Partition:
        """See `PartitionStore.change_isr`."""
        name = f"{change.topic_id}-{change.partition}"

        async def work(connection: AsyncConnection) -> Partition:
            changes = await cluster_log.begin(connection)
            key, partition = _only(
                await load_partitions(
                    connection,
                    topic_partition.c.topic_id == to_uuid(change.topic_id),
                    topic_partition.c.partition == change.partition,
                ),
                name,
            )
            changed = leadership.with_isr(partition, change, await live_broker_ids(connection))
            if changed is None:
                return partition
            await _finish(changes, [(key, changed)])
            return changed

        partition = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return partition

    async def elect_leaders(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> int:
        """See `PartitionStore.elect_leaders`."""

        async def work(connection: AsyncConnection) -> int:
            changes = await cluster_log.begin(connection)
            live = await live_broker_ids(connection)
            found = await _named(connection, partitions)
            changed: _Changed = []
            for key, partition in found:
                try:
                    outcome = leadership.elected(partition, live, unclean=unclean)
                except NotLeaderError:
                    if partitions:
                        raise
                    continue
                if outcome is not None:
                    changed.append((key, outcome))
            return await _finish(changes, changed)

        version = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return version

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> int:
        """See `PartitionStore.reassign`."""
        most = self._max_replication_factor

        async def work(connection: AsyncConnection) -> int:
            changes = await cluster_log.begin(connection)
            brokers = await load_brokers(connection)
            known = frozenset(broker.broker_id for broker in brokers)
            live = frozenset(broker.broker_id for broker in brokers if broker.alive)
            changed: _Changed = []
            for named, target in targets.items():
                placement.check_replica_count(len(target), most)
                placement.check_replicas(named.partition, target, known)
                [(key, partition)] = await _named(connection, [named])
                placement.check_move(named.partition, partition.replicas, target, most)
                changed.append((key, leadership.reassigned(partition, target, live)))
            return await _finish(changes, changed)

        version = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return version


async def _finish(changes: ClusterTransaction, changed: _Changed) -> int:
    await update_partitions(changes.connection, changed)
    changes.topic_ids.update(topic_id for (topic_id, _), _ in changed)
    return await changes.finish()


async def _named(connection: AsyncConnection, partitions: Sequence[TopicPartition]) -> _Changed:
    """The partitions named, all of them when none is.

    Raises:
        RemoteResourceNotFoundError: one does not exist.
    """
    named = names_one_of(topic.c.name, topic_partition.c.partition, partitions)
    found = await load_partitions(connection, *([named] if partitions else []))
    if len(found) < len(set(partitions)):
        names = ", ".join(f"{named.topic}-{named.partition}" for named in partitions[:_NAMES_TOLD])
        raise _no_partition(names if len(partitions) <= _NAMES_TOLD else f"{names} or another")
    return [(key, partition) for key, partition, _ in found]


def _only(
    found: list[tuple[PartitionKey, Partition, bool]], name: str
) -> tuple[PartitionKey, Partition]:
    if not found:
        raise _no_partition(name)
    key, partition, _ = found[0]
    return key, partition


def _no_partition(name: str) -> AquiferError:
    return RemoteResourceNotFoundError(
        f"partition {name} does not exist",
        reason=ErrorReason.PARTITION_NOT_FOUND,
        metadata={"topicIdPartition": name},
    )
