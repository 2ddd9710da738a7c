"""Producer ids and transactional ids."""

from typing import Any

from aquifer_core.errors import ConcurrentUpdateError, ErrorReason, RemoteStorageUnavailableError
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.tables import producer_id_block, transaction_state
from aquifer_metadata.domain.cluster import TopicPartition, TransactionState


class SqlTransactionStore:
    """Implements `TransactionStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def allocate_producer_ids(self, count: int) -> int:
        """See `TransactionStore.allocate_producer_ids`."""
        block = producer_id_block.c
        statement = (
            update(producer_id_block)
            .values(next_producer_id=block.next_producer_id + count)
            .returning(block.next_producer_id)
        )

        async def work(connection: AsyncConnection) -> int:
            end = await connection.scalar(statement)
            if end is None:
                raise RemoteStorageUnavailableError(
                    "the cluster has not been initialized yet",
                    reason=ErrorReason.NOT_READY,
                    retry_after_ms=500,
                )
            return int(end) - count

        return await self._database.write(work)

    async def get(self, transactional_id: str) -> TransactionState | None:
        """See `TransactionStore.get`."""
        query = select(transaction_state).where(
            transaction_state.c.transactional_id == transactional_id
        )

        async def work(connection: AsyncConnection) -> TransactionState | None:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            values = dict(row._mapping)
            values["partitions"] = tuple(
                TopicPartition(topic=topic, partition=partition)
                for topic, partition in row.partitions
            )
            return TransactionState(**values)

        return await self._database.read(work)

    async def put(self, state: TransactionState) -> int:
        """See `TransactionStore.put`."""
        version = state.version + 1
        values = {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "timeout_ms": state.timeout_ms,
            "state": state.state,
            "partitions": [[named.topic, named.partition] for named in state.partitions],
            "start_timestamp_ms": state.start_timestamp_ms,
            "version": version,
        }
        key = transaction_state.c.transactional_id

        async def work(connection: AsyncConnection) -> bool:
            if state.version == 0:
                made = insert(transaction_state).values(
                    transactional_id=state.transactional_id, **values
                )
                written: Any = made.on_conflict_do_nothing().returning(transaction_state.c.version)
            else:
                moved = update(transaction_state).where(
                    key == state.transactional_id, transaction_state.c.version == state.version
                )
                written = moved.values(**values).returning(transaction_state.c.version)
            return await connection.scalar(written) is not None

        if not await self._database.write(work):
            raise ConcurrentUpdateError(
                f"transactional id {state.transactional_id!r} is no longer at version {state.version}"
            )
        return version
