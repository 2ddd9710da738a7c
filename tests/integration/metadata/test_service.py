"""The metadata service as a process: migrates, serves, traces down to SQL, drains, and dies without consequences."""

import asyncio
import signal
from urllib.parse import urlsplit
from uuid import uuid4

import builders
import psycopg
import pytest
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.schema import check_schema
from contract.remote_log_metadata.steps import brought_to, found, listed
from fixtures.metadata_process import process, running
from fixtures.otlp import OtlpCollector, SpanNode
from psycopg import sql


async def test_migrate_brings_the_schema_up_to_date_and_ends(database_dsn: str) -> None:
    for _ in range(2):
        command = await process("migrate", DATABASE__DSN=database_dsn)
        await command.communicate()
        assert command.returncode == 0
    async with Database(DatabaseOptions(dsn=database_dsn)) as database:
        await check_schema(database)


async def test_without_automatic_migration_an_old_schema_ends_the_start(database_dsn: str) -> None:
    command = await process(DATABASE__DSN=database_dsn, DATABASE__AUTO_MIGRATE="false")
    _, errors = await command.communicate()
    assert command.returncode == 1
    assert b"aquifer-metadata migrate" in errors


async def test_a_misspelt_setting_ends_the_start_and_the_password_is_not_shown(
    database_dsn: str,
) -> None:
    command = await process(DATABASE__DSN=database_dsn, DATABASE__POOL_SZE="3")
    _, errors = await command.communicate()
    assert command.returncode == 2
    assert b"did you mean AQUIFER_METADATA_DATABASE__POOL_SIZE?" in errors
    command = await process(DATABASE__DSN="postgresql://u:hunter2@127.0.0.1:1/x")
    _, errors = await command.communicate()
    assert command.returncode == 1
    assert b"hunter2" not in errors


async def test_a_password_may_come_from_the_environment_of_libpq_whatever_is_in_it(
    postgres_dsn: str, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docker-compose.yml gives it: in an address `@` and `/` would mean something else."""
    user, password = f"user_{uuid4().hex}", "p@ss/w%rd"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(
                sql.Identifier(user), sql.Literal(password)
            )
        )
    parts = urlsplit(database_dsn)
    monkeypatch.setenv("PGPASSWORD", password)
    try:
        address = parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()
        command = await process("migrate", DATABASE__DSN=address)
        _, errors = await command.communicate()
        assert command.returncode == 0, errors
        refused = parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()
        command = await process("migrate", DATABASE__DSN=refused)
        await command.communicate()
        assert command.returncode != 0
    finally:
        with psycopg.connect(database_dsn, autocommit=True) as connection:
            for statement in ("REASSIGN OWNED BY {} TO CURRENT_USER", "DROP ROLE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(user)))


async def test_statements_are_spans_of_their_rpc_and_history_names_the_trace(
    metadata_dsn: str, otlp_collector: OtlpCollector
) -> None:
    settings = {"TELEMETRY__OTLP_ENDPOINT": otlp_collector.endpoint}
    async with running(metadata_dsn, **settings) as service:
        metadata = await brought_to(
            service.client, builders.remote_segment(builders.topic_id_partition(), 0, 9)
        )
        history = await service.client.segment_history(metadata.segment_id)

        def is_the_addition(root: SpanNode) -> bool:
            return root.span.trace_id == history[0].trace_id and root.span.kind == "SERVER"

        root = await otlp_collector.wait_for_tree(is_the_addition)
    assert root.span.name.endswith("RemoteLogMetadataService/AddRemoteLogSegmentMetadata")
    statements = [child.span for child in root.children]
    assert {span.kind for span in statements} == {"CLIENT"}
    assert {span.attributes["db.system.name"] for span in statements} == {"postgresql"}
    assert any("remote_log_segment" in span.attributes["db.query.text"] for span in statements)
    assert not any(str(metadata.end_offset) == span.name for span in statements)


async def test_a_killed_service_leaves_nothing_behind_that_a_new_one_does_not_know(
    metadata_dsn: str,
) -> None:
    """T38: no state outside of PostgreSQL, ready at once."""
    partition = builders.topic_id_partition()
    async with running(metadata_dsn) as service:
        segment = await brought_to(service.client, builders.remote_segment(partition, 0, 9))
        service.process.kill()
        await service.process.wait()
    async with running(metadata_dsn) as service:
        assert await found(service.client, partition, 0, 5) == segment.segment_id
        assert await listed(service.client, partition) == [segment]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_the_process_though_watches_are_open(
    metadata_dsn: str, number: signal.Signals
) -> None:
    async with running(metadata_dsn) as service:
        partition = builders.topic_id_partition()
        await brought_to(service.client, builders.remote_segment(partition, 0, 9))
        watch = service.client.watch_partition(partition)
        assert (await anext(watch)).version > 0
        service.process.send_signal(number)
        async with asyncio.timeout(60):
            assert await service.process.wait() == 0
        await watch.aclose()  # type: ignore[attr-defined]
