"""The index of a large table is built while others write, by one of the services that start, and again when an attempt was cut off."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import builders
import psycopg
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import PreconditionError, RemoteStorageUnavailableError
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.schema import check_schema, head_revision, migrate
from contract.remote_log_metadata.steps import brought_to, listed
from fixtures.polling import eventually

INDEX = "remote_log_segment_epoch_with_transactions"
WITHOUT_INDEX, WITH_INDEX = "0003", "0004"
WAIT_S = 120
WRITE = """
INSERT INTO remote_log_segment_epoch (topic_id, partition, leader_epoch, segment_id, start_offset, end_offset, txn_index_empty,
  referenced) VALUES (gen_random_uuid(), 0, 0, gen_random_uuid(), 0, 9, false, false)
"""
ELSEWHERE = "SELECT count(*) FROM alembic_version"
BUILDING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(query, 'CREATE INDEX CONCURRENTLY') AND wait_event_type = 'Lock'
"""
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"


def options(dsn: str) -> DatabaseOptions:
    """Of a migration; one that queues in front of writers would give way at once."""
    return DatabaseOptions(dsn=dsn, pool_size=2, lock_timeout_ms=100)


@pytest.fixture
async def old_dsn(metadata_dsn: str) -> str:
    """A database as a service from before the index left it."""
    await migrate(options(metadata_dsn), WITHOUT_INDEX)
    return metadata_dsn


def ask(dsn: str, statement: str, *parameters: Any) -> Any:
    """First column of the first row, None without one."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.encode(), parameters).fetchone()
    return None if row is None else row[0]


@contextmanager
def open_transaction(dsn: str, statement: str = WRITE) -> Iterator[psycopg.Connection[Any]]:
    """One that an index has to wait for."""
    with psycopg.connect(dsn, application_name="a slow session") as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(statement.encode())
        yield connection


@asynccontextmanager
async def begun(dsn: str, services: int = 1) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Migrations of services that start together, one of which has begun to build the index and waits."""
    tasks = [
        asyncio.create_task(migrate(options(dsn), lock_wait_s=WAIT_S)) for _ in range(services)
    ]
    try:
        await eventually(lambda: ask(dsn, BUILDING), timeout_s=WAIT_S)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def check_whole(dsn: str) -> None:
    assert ask(dsn, VALID, INDEX) is True
    async with Database(options(dsn)) as database:
        await check_schema(database)


async def test_writers_go_on_while_services_that_start_together_build_an_index(
    old_dsn: str,
) -> None:
    """T40. Whoever waits for its turn keeps no snapshot, which the builder would wait for, nor anything that writers wait for."""
    partition = builders.topic_id_partition()
    async with Database(DatabaseOptions(dsn=old_dsn, pool_size=2)) as database:
        rlmm = PostgresRemoteLogMetadataManager(
            database, ChangeSignal(database), clock=SystemClock(), trace_id=lambda: ""
        )
        with open_transaction(old_dsn) as other:
            async with begun(old_dsn, services=3) as migrations:
                written = [
                    await brought_to(rlmm, builders.remote_segment(partition, start, start + 9))
                    for start in (0, 10)
                ]
                assert ask(old_dsn, VALID, INDEX) is False
                other.rollback()
                await asyncio.wait_for(asyncio.gather(*migrations), WAIT_S)
        assert await listed(rlmm, partition) == written
    await check_whole(old_dsn)


async def test_an_index_whose_building_was_cut_off_is_built_anew(old_dsn: str) -> None:
    with open_transaction(old_dsn):
        async with begun(old_dsn) as [migration]:
            assert ask(old_dsn, "SELECT pg_terminate_backend(%s)", ask(old_dsn, BUILDING))
            with pytest.raises(RemoteStorageUnavailableError, match="terminating connection"):
                await asyncio.wait_for(migration, WAIT_S)
    assert ask(old_dsn, VALID, INDEX) is False
    assert ask(old_dsn, "SELECT version_num FROM alembic_version") == WITHOUT_INDEX
    await migrate(options(old_dsn))
    await check_whole(old_dsn)


async def test_an_index_that_was_built_before_the_process_died_is_kept(old_dsn: str) -> None:
    await migrate(options(old_dsn), WITH_INDEX)
    built = ask(old_dsn, "SELECT to_regclass(%s)::oid", INDEX)
    ask(old_dsn, "UPDATE alembic_version SET version_num = %s RETURNING 1", WITHOUT_INDEX)
    await migrate(options(old_dsn))
    assert ask(old_dsn, "SELECT version_num FROM alembic_version") == head_revision()
    assert ask(old_dsn, "SELECT to_regclass(%s)::oid", INDEX) == built
    await check_whole(old_dsn)


@pytest.mark.parametrize(
    ("statement", "used"), [(WRITE, "remote_log_segment_epoch"), (ELSEWHERE, "the database")]
)
async def test_whoever_keeps_an_index_from_being_built_is_named(
    old_dsn: str, statement: str, used: str
) -> None:
    with open_transaction(old_dsn, statement):
        with pytest.raises(PreconditionError) as refused:
            await migrate(options(old_dsn), index_wait_s=0.3)
        assert f"(a slow session) uses {used} since" in refused.value.message
        assert refused.value.metadata["found"] == WITHOUT_INDEX
    await migrate(options(old_dsn))
    await check_whole(old_dsn)
