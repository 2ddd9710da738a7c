"""Brokers, their leases, and the leadership that comes and goes with them."""

import uuid
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from aquifer_core.errors import ErrorReason, PreconditionError, RemoteResourceNotFoundError
from sqlalchemy import Row, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres import cluster_log
from aquifer_metadata.adapters.postgres.change_signal import CLUSTER, ChangeSignal
from aquifer_metadata.adapters.postgres.cluster_rows import (
    PartitionKey,
    broker_from_row,
    broker_values,
    live_broker_ids,
    load_partitions,
    update_partitions,
)
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import broker, topic_partition
from aquifer_metadata.domain import leadership
from aquifer_metadata.domain.cluster import (
    NO_LEADER,
    Broker,
    Partition,
    Registration,
    RenewedLease,
)

_CONTROLLER_LOCK = 4_919_405_002
"""Key of the advisory lock that lets one replica expire leases at a time."""

_REMEMBERED_INCARNATIONS = 32
_OTHERS_LEASES = timedelta(minutes=10)
"""How much longer leases of replicas with other settings may be, while settings are being changed."""


class SqlBrokerStore:
    """Implements `BrokerStore`. Leases run by the clock of PostgreSQL alone."""

    def __init__(self, database: Database, signal: ChangeSignal, *, lease_ms: int) -> None:
        self._database = database
        self._signal = signal
        self._lease_ms = lease_ms

    async def register(self, broker_: Broker) -> Registration:
        """See `BrokerStore.register`."""

        async def work(connection: AsyncConnection) -> Registration:
            changes = await cluster_log.begin(connection)
            found = await self._find(connection, broker_.broker_id, lock=True)
            if found is not None and found.incarnation == broker_.incarnation and found.alive:
                return await self._registered_again(changes, found, broker_)
            if found is not None:
                _refuse_older(found, broker_)
            return await self._registered(changes, found, broker_)

        registration = await self._database.write(work)
        self._signal.changed(CLUSTER)
        return registration

    async def heartbeat(self, broker_id: int, broker_epoch: int) -> RenewedLease:
        """See `BrokerStore.heartbeat`."""

        async def work(connection: AsyncConnection) -> RenewedLease:
            renewed = await connection.scalar(
                update(broker)
                .where(
                    broker.c.broker_id == broker_id,
                    broker.c.broker_epoch == broker_epoch,
                    broker.c.alive,
                )
                .values(lease_expires_at=self._lease_end())
                .returning(broker.c.broker_id)
            )
            if renewed is None:
                _refuse_heartbeat(await self._find(connection, broker_id), broker_id, broker_epoch)
            return RenewedLease(
                lease_ms=self._lease_ms, version=await cluster_log.current_version(connection)
            )

        return await self._database.read(work)

    async def unregister(self, broker_id: int, broker_epoch: int) -> None:
        """See `BrokerStore.unregister`."""

        async def work(connection: AsyncConnection) -> bool:
            changes = await cluster_log.begin(connection)
            found = await self._find(connection, broker_id, lock=True)
            if found is None or not found.alive or found.broker_epoch != broker_epoch:
                return False
            await _end_leases(changes, [broker_id])
            await changes.finish()
            return True

        if await self._database.write(work):
            self._signal.changed(CLUSTER)

    async def lease_clock_s(self) -> float:
        """See `BrokerStore.lease_clock_s`."""
        query = select(func.extract("epoch", func.clock_timestamp()))

        async def work(connection: AsyncConnection) -> float:
            return float((await connection.execute(query)).scalar_one())

        return await self._database.read(work)

    async def expire_leases(self) -> Sequence[int]:
        """See `BrokerStore.expire_leases`."""
        too_late = func.now() + timedelta(milliseconds=self._lease_ms) + _OTHERS_LEASES
        overdue = select(broker.c.broker_id).where(
            broker.c.alive,
            or_(broker.c.lease_expires_at < func.now(), broker.c.lease_expires_at > too_late),
        )
        # A broker may have the id 0.
        if await self._database.read(lambda connection: connection.scalar(overdue)) is None:
            return ()

        async def work(connection: AsyncConnection) -> Sequence[int]:
            lock = text("SELECT pg_try_advisory_xact_lock(:key)")
            if not await connection.scalar(lock, {"key": _CONTROLLER_LOCK}):
                return ()
            changes = await cluster_log.begin(connection)
            gone = (await connection.scalars(overdue.with_for_update())).all()
            await _end_leases(changes, gone)
            await changes.finish()
            return gone

        gone = await self._database.write(work)
        if gone:
            self._signal.changed(CLUSTER)
        return gone

    async def _find(
        self, connection: AsyncConnection, broker_id: int, *, lock: bool = False
    ) -> Row[Any] | None:
        query = select(
            broker, (broker.c.lease_expires_at > func.now()).label("lease_is_live")
        ).where(broker.c.broker_id == broker_id)
        return (await connection.execute(query.with_for_update() if lock else query)).one_or_none()

    def _lease_end(self) -> Any:
        return func.clock_timestamp() + timedelta(milliseconds=self._lease_ms)

    async def _registered_again(
        self, changes: cluster_log.ClusterTransaction, found: Row[Any], said: Broker
    ) -> Registration:
        """A repeat: renews the lease and takes over what the broker says of itself, under the same epoch."""
        if broker_values(broker_from_row(found)) != broker_values(said):
            changes.broker_ids.add(said.broker_id)
        await changes.connection.execute(
            update(broker)
            .where(broker.c.broker_id == said.broker_id)
            .values(**broker_values(said), lease_expires_at=self._lease_end())
        )
        await changes.finish()
        return self._registration(changes, found.broker_epoch)

    async def _registered(
        self, changes: cluster_log.ClusterTransaction, found: Row[Any] | None, said: Broker
    ) -> Registration:
        broker_epoch = changes.version + 1
        replaced = [] if found is None else [*found.replaced_incarnations, found.incarnation]
        values = {
            **broker_values(said),
            "replaced_incarnations": replaced[-_REMEMBERED_INCARNATIONS:],
            "broker_epoch": broker_epoch,
            "alive": True,
            "lease_expires_at": self._lease_end(),
        }
        await changes.connection.execute(
            insert(broker)
            .values(values)
            .on_conflict_do_update(index_elements=[broker.c.broker_id], set_=values)
        )
        changes.broker_ids.add(said.broker_id)
        await _claim_partitions(changes, said.broker_id)
        await changes.finish()
        return self._registration(changes, broker_epoch)

    def _registration(
        self, changes: cluster_log.ClusterTransaction, broker_epoch: int
    ) -> Registration:
        return Registration(
            cluster_id=changes.cluster_id, broker_epoch=broker_epoch, lease_ms=self._lease_ms
        )


async def _claim_partitions(changes: cluster_log.ClusterTransaction, broker_id: int) -> None:
    candidates = await load_partitions(
        changes.connection,
        topic_partition.c.leader.in_([broker_id, NO_LEADER]),
        topic_partition.c.replicas.contains([broker_id]),
    )
    await _write_changed(
        changes,
        [
            (key, leadership.claimed(partition, broker_id, unclean=unclean))
            for key, partition, unclean in candidates
        ],
    )


async def _end_leases(changes: cluster_log.ClusterTransaction, gone: Collection[int]) -> None:
    if not gone:
        return
    await changes.connection.execute(
        update(broker).where(broker.c.broker_id.in_(gone)).values(alive=False)
    )
    changes.broker_ids.update(gone)
    live = await live_broker_ids(changes.connection)
    concerned = await load_partitions(
        changes.connection,
        or_(topic_partition.c.leader.in_(gone), topic_partition.c.replicas.overlap(list(gone))),
    )
    await _write_changed(
        changes,
        [
            (key, leadership.abandoned(partition, gone, live, unclean=unclean))
            for key, partition, unclean in concerned
        ],
    )


async def _write_changed(
    changes: cluster_log.ClusterTransaction,
    outcomes: Sequence[tuple[PartitionKey, Partition | None]],
) -> None:
    changed = [(key, partition) for key, partition in outcomes if partition is not None]
    await update_partitions(changes.connection, changed)
    topic_ids: set[uuid.UUID] = {topic_id for (topic_id, _), _ in changed}
    changes.topic_ids.update(topic_ids)


def _refuse_older(found: Row[Any], said: Broker) -> None:
    """A process that was replaced must not take its id back while its successor lives."""
    older = said.incarnation in found.replaced_incarnations
    if older and found.alive and found.lease_is_live:
        raise PreconditionError(
            f"broker {said.broker_id} has been taken over by incarnation {found.incarnation}",
            reason=ErrorReason.STALE_BROKER_EPOCH,
            metadata={"brokerId": str(said.broker_id)},
        )


def _refuse_heartbeat(found: Row[Any] | None, broker_id: int, broker_epoch: int) -> None:
    metadata = {"brokerId": str(broker_id)}
    if found is not None and found.broker_epoch > broker_epoch:
        raise PreconditionError(
            f"broker {broker_id} has registered again: epoch {broker_epoch} was followed by {found.broker_epoch}",
            reason=ErrorReason.STALE_BROKER_EPOCH,
            metadata=metadata,
        )
    raise RemoteResourceNotFoundError(
        f"broker {broker_id} is not registered under epoch {broker_epoch}, or its lease has expired",
        reason=ErrorReason.BROKER_NOT_FOUND,
        metadata=metadata,
    )
