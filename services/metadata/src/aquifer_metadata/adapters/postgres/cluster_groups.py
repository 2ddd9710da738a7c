"""Offsets of consumer groups."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.cluster_rows import names_one_of
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import group_offset
from aquifer_metadata.domain.cluster import GroupCoordinator, GroupOffset, TopicPartition
from aquifer_metadata.domain.coordination import check_coordinator

_REGISTRATIONS = text("""
SELECT max(broker_epoch) FILTER (WHERE alive AND broker_id = :broker_id) AS live_epoch,
  coalesce(max(broker_epoch), 0) AS newest_epoch FROM broker
""")
_VALUES = ("offset", "leader_epoch", "metadata", "commit_timestamp_ms")


class SqlGroupStore:
    """Implements `GroupStore`.

    A write looks at its coordinator last, when it holds its rows. A successor has written there before, and then what made it the
    successor is seen, or has to wait and writes after.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[GroupOffset],
        coordinator: GroupCoordinator | None = None,
    ) -> None:
        """See `GroupStore.commit`. Rows are written in one order, so that two commits cannot lock each other out."""
        latest = {(value.topic, value.partition): value for value in offsets}
        if not latest:
            return
        statement = insert(group_offset)
        statement = statement.on_conflict_do_update(
            index_elements=[
                group_offset.c.group_id,
                group_offset.c.topic,
                group_offset.c.partition,
            ],
            set_={name: statement.excluded[name] for name in _VALUES},
        )
        rows = [
            {
                "group_id": group_id,
                "topic": value.topic,
                "partition": value.partition,
                **{name: getattr(value, name) for name in _VALUES},
            }
            for _, value in sorted(latest.items())
        ]

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statement, rows)
            await _check(connection, coordinator)

        await self._database.write(work)

    async def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Sequence[GroupOffset]:
        """See `GroupStore.fetch`."""
        query = select(group_offset).where(group_offset.c.group_id == group_id)
        if partitions:
            query = query.where(_named(partitions))
        query = query.order_by(group_offset.c.topic, group_offset.c.partition)

        async def work(connection: AsyncConnection) -> Sequence[GroupOffset]:
            return [
                GroupOffset(
                    topic=row.topic,
                    partition=row.partition,
                    **{name: row._mapping[name] for name in _VALUES},
                )
                for row in await connection.execute(query)
            ]

        return await self._database.read(work)

    async def delete(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        coordinator: GroupCoordinator | None = None,
    ) -> None:
        """See `GroupStore.delete`."""
        statement = delete(group_offset).where(group_offset.c.group_id == group_id)
        if partitions:
            statement = statement.where(_named(partitions))

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(statement)
            await _check(connection, coordinator)

        await self._database.write(work)

    async def group_ids(self) -> Sequence[str]:
        """See `GroupStore.group_ids`."""
        query = select(group_offset.c.group_id).distinct().order_by(group_offset.c.group_id)

        async def work(connection: AsyncConnection) -> Sequence[str]:
            return (await connection.scalars(query)).all()

        return await self._database.read(work)


def _named(partitions: Sequence[TopicPartition]) -> ColumnElement[bool]:
    return names_one_of(group_offset.c.topic, group_offset.c.partition, partitions)


async def _check(connection: AsyncConnection, said: GroupCoordinator | None) -> None:
    if said is None:
        return
    found = (await connection.execute(_REGISTRATIONS, {"broker_id": said.broker_id})).one()
    check_coordinator(said, found.live_epoch, found.newest_epoch)
