"""Migrations: up and down, from several replicas at once, and refusals of foreign schemas."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from aquifer_core.errors import PreconditionError
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.schema import check_schema, head_revision, migrate
from aquifer_metadata.adapters.postgres.tables import metadata
from aquifer_metadata.app import running_server
from fixtures.metadata_service import metadata_settings
from sqlalchemy import Connection, text


async def tables(database: Database) -> set[str]:
    rows = await database.read(
        lambda connection: connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        )
    )
    return {row.tablename for row in rows}


async def execute(database: Database, statement: str) -> None:
    await database.write(lambda connection: connection.execute(text(statement)))


async def test_migrations_make_exactly_the_tables_of_the_code(database_dsn: str) -> None:
    options = DatabaseOptions(dsn=database_dsn, pool_size=2)
    await migrate(options)

    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    async with Database(options) as database:
        found = await database.read(lambda connection: connection.run_sync(differences))
        assert found == []
        await check_schema(database)


async def test_migrations_go_up_and_down_and_up_again(database_dsn: str) -> None:
    options = DatabaseOptions(dsn=database_dsn, pool_size=2)
    async with Database(options) as database:
        for _ in range(2):
            await migrate(options)
            assert set(metadata.tables) < await tables(database)
            await migrate(options, "base")
            assert await tables(database) == {"alembic_version"}


async def test_replicas_that_start_together_migrate_once(database_dsn: str) -> None:
    options = DatabaseOptions(dsn=database_dsn, pool_size=2)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(migrate(options))
    async with Database(options) as database:
        await check_schema(database)


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "upgrade this service"),
        ("DELETE FROM alembic_version", "aquifer-metadata migrate"),
    ],
)
async def test_a_service_refuses_a_schema_it_was_not_written_for(
    metadata_dsn: str, statement: str, remedy: str
) -> None:
    options = DatabaseOptions(dsn=metadata_dsn, pool_size=2)
    async with Database(options) as database:
        await execute(database, statement)
    settings = metadata_settings(metadata_dsn)
    settings = settings.model_copy(
        update={"database": settings.database.model_copy(update={"auto_migrate": False})}
    )
    with pytest.raises(PreconditionError, match=remedy) as refused:
        async with running_server(settings):
            pass
    assert refused.value.reason == "SCHEMA_MISMATCH"
    assert refused.value.metadata["expected"] == head_revision()


async def test_a_newer_schema_is_not_migrated_back(metadata_dsn: str) -> None:
    options = DatabaseOptions(dsn=metadata_dsn, pool_size=2)
    async with Database(options) as database:
        await execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(PreconditionError, match="upgrade this service"):
        await migrate(options)


async def test_a_migration_gives_way_to_a_table_that_is_in_use(metadata_dsn: str) -> None:
    """T40: a migration never queues in front of traffic for longer than its lock timeout."""
    options = DatabaseOptions(dsn=metadata_dsn, pool_size=2, lock_timeout_ms=100)
    async with Database(options) as database:

        async def busy(connection):  # type: ignore[no-untyped-def]
            await connection.execute(text("LOCK TABLE remote_log_partition IN ROW EXCLUSIVE MODE"))
            with pytest.raises(PreconditionError, match="in use"):
                await migrate(options, "base")

        await database.write(busy)
        await migrate(options)
        await check_schema(database)
