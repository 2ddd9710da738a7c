"""Copies that go as planned cost a statement each; whoever was overtaken meanwhile is judged by what is true then."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import (
    InvalidStateTransitionError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.remote_log_rows import partition_key, segment_uuid
from contract.remote_log_metadata.steps import FINISHED, found, update
from fixtures.polling import eventually
from sqlalchemy import TextClause, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

_OVERTAKE = text(
    "UPDATE remote_log_partition SET version = version + 1 WHERE topic_id = :topic_id AND partition = :partition"
)
_FENCE = text(
    "UPDATE remote_log_partition SET highest_leader_epoch = 5 WHERE topic_id = :topic_id AND partition = :partition"
)
_DELETED_MEANWHILE = text("""
INSERT INTO remote_log_segment_event (topic_id, partition, version, timestamp_ms, segment_id, from_state, to_state, reason,
  trace_id)
SELECT topic_id, partition, version, 0, :segment_id, 2, 3, '', '' FROM remote_log_partition
WHERE topic_id = :topic_id AND partition = :partition
""")
_WAITING = text("""
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%taken AS%'
""")
_ROWS = {
    "segment": """SELECT start_offset, end_offset, broker_id, max_timestamp_ms, event_timestamp_ms, segment_size_bytes, state,
        leader_epochs, leader_epoch_offsets, custom_metadata, txn_index_empty, writer_leader_epoch""",
    "segment_epoch": """SELECT leader_epoch, start_offset, end_offset, txn_index_empty, referenced,
        finished_version IS NOT NULL""",
    "segment_event": """SELECT from_state, to_state, broker_id, event_timestamp_ms, custom_metadata, leader_epoch, reason,
        trace_id, delete_state, earliest_log_offset, gone_segment""",
    "epoch": "SELECT leader_epoch, highest_offset",
    "partition": "SELECT topic, highest_leader_epoch, earliest_log_offset, delete_state",
}


@pytest.fixture
async def metadata_database(metadata_dsn: str) -> AsyncIterator[Database]:
    """Of this module: one whose statements may wait for as long as a loaded machine takes."""
    options = DatabaseOptions(
        dsn=metadata_dsn, pool_size=4, lock_timeout_ms=120_000, statement_timeout_ms=120_000
    )
    async with Database(options) as database:
        yield database


@pytest.fixture
def rlmm(metadata_database: Database) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        metadata_database,
        ChangeSignal(metadata_database),
        clock=SystemClock(),
        trace_id=lambda: "0af7651916cd43dd8448eb211c80319c",
    )


async def led(rlmm: PostgresRemoteLogMetadataManager) -> TopicIdPartition:
    """A partition that metadata knows, with a leader in epoch 0."""
    partition = builders.topic_id_partition()
    await rlmm.on_partition_leadership_changes({partition: 0}, [])
    return partition


def copy_of(partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    return builders.remote_segment(partition, 10, 39, {0: 10, 2: 30})


def started_and_finished(
    rlmm: PostgresRemoteLogMetadataManager, segment: RemoteLogSegmentMetadata
) -> list[Coroutine[Any, Any, None]]:
    finish = update(segment, FINISHED, custom_metadata=b"where", broker_id=4)
    return [
        rlmm.add_remote_log_segment_metadata(segment, leader_epoch=2),
        rlmm.update_remote_log_segment_metadata(finish, leader_epoch=2),
    ]


async def rows(database: Database, partition: TopicIdPartition) -> dict[str, list[Any]]:
    async def work(connection: AsyncConnection) -> dict[str, list[Any]]:
        where = "WHERE topic_id = :topic_id AND partition = :partition ORDER BY 1, 2"
        return {
            table: [
                tuple(row)
                for row in await connection.execute(
                    text(f"{columns} FROM remote_log_{table} {where}"),
                    partition_key(partition).values,
                )
            ]
            for table, columns in _ROWS.items()
        }

    return await database.read(work)


async def waiting(database: Database) -> int | None:
    """The server process that waits for a partition's row with one of the statements."""
    pid = await database.read(lambda connection: connection.scalar(_WAITING))
    return None if pid is None else int(pid)


async def outcome_when_overtaken(
    database: Database,
    writing: Coroutine[Any, Any, None],
    partition: TopicIdPartition,
    *changes: TextClause,
    **values: Any,
) -> Exception | None:
    """What comes of a write that began before changes of its partition, waited for them, and went on when they were committed."""
    of_partition = partition_key(partition).values

    async def change(connection: AsyncConnection) -> "asyncio.Task[Exception | None]":
        for statement in changes:
            await connection.execute(statement, of_partition | values)
        task = asyncio.create_task(_outcome(writing))
        await eventually(lambda: waiting(database))
        return task

    return await (await database.write(change))


async def _outcome(writing: Coroutine[Any, Any, None]) -> Exception | None:
    try:
        await writing
    except Exception as error:
        return error
    return None


async def test_a_copy_that_goes_as_planned_needs_no_transaction(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    partition = await led(rlmm)
    segment = copy_of(partition)
    of_transactions: list[str] = []
    event.listen(
        metadata_database.engine.sync_engine,
        "before_cursor_execute",
        lambda *arguments: of_transactions.append(arguments[2]),
    )
    for write in started_and_finished(rlmm, segment):
        await write
    assert of_transactions == []
    assert await found(rlmm, partition, 0, 29) == segment.segment_id
    assert await found(rlmm, partition, 2, 39) == segment.segment_id
    assert await rlmm.highest_offset_for_epoch(partition, 0) == 29
    assert await rlmm.highest_offset_for_epoch(partition, 2) == 39


async def test_writes_that_were_overtaken_leave_the_same_rows(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    plain, late = await led(rlmm), await led(rlmm)
    for write in started_and_finished(rlmm, copy_of(plain)):
        await write
    for write in started_and_finished(rlmm, copy_of(late)):
        outcome = await outcome_when_overtaken(metadata_database, write, late, _OVERTAKE)
        assert outcome is None
    assert await rows(metadata_database, late) == await rows(metadata_database, plain)


async def test_a_leader_that_is_replaced_while_it_waits_is_refused(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    partition = await led(rlmm)
    add, finish = started_and_finished(rlmm, copy_of(partition))
    await add
    before = await rows(metadata_database, partition)
    outcome = await outcome_when_overtaken(metadata_database, finish, partition, _FENCE)
    assert isinstance(outcome, StaleLeaderEpochError)
    after = await rows(metadata_database, partition)
    assert after | {"partition": before["partition"]} == before
    assert after["partition"] == [(partition.topic, 5, None, None)]


async def test_an_id_whose_segment_is_deleted_while_its_addition_waits_is_not_used_again(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    """The statement began before the deletion was committed, and must not go by what it saw."""
    partition = await led(rlmm)
    segment = copy_of(partition)
    add = rlmm.add_remote_log_segment_metadata(segment, leader_epoch=2)
    outcome = await outcome_when_overtaken(
        metadata_database,
        add,
        partition,
        _OVERTAKE,
        _DELETED_MEANWHILE,
        segment_id=segment_uuid(segment.segment_id),
    )
    assert isinstance(outcome, InvalidStateTransitionError)
    assert (await rows(metadata_database, partition))["segment"] == []


async def test_a_write_whose_answer_is_lost_is_left_to_its_caller(
    rlmm: PostgresRemoteLogMetadataManager, metadata_database: Database
) -> None:
    """Repeated here it could be refused although it had been done, and the caller would not know that this was no first attempt."""
    partition = await led(rlmm)
    segment = copy_of(partition)
    add = rlmm.add_remote_log_segment_metadata(segment, leader_epoch=2)

    async def cut_while_it_waits(connection: AsyncConnection) -> Any:
        await connection.execute(_OVERTAKE, partition_key(partition).values)
        task = asyncio.create_task(_outcome(add))
        pid = await eventually(lambda: waiting(metadata_database))
        await connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        return await task

    outcome = await metadata_database.write(cut_while_it_waits)
    assert isinstance(outcome, RemoteStorageUnavailableError)
    assert (await rows(metadata_database, partition))["segment"] == []
    await rlmm.add_remote_log_segment_metadata(segment, leader_epoch=2)
    await rlmm.add_remote_log_segment_metadata(segment, leader_epoch=2)
    assert len((await rows(metadata_database, partition))["segment_event"]) == 1
