"""Migrations run while others write: nothing that was acknowledged is lost, and writers never wait for long."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import builders
import psycopg
import pytest
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import PreconditionError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_metadata.adapters.postgres.database import DatabaseOptions
from aquifer_metadata.adapters.postgres.schema import head_revision, migrate
from aquifer_metadata.app import running_server
from aquifer_metadata.settings import DatabaseSettings
from contract.remote_log_metadata.steps import DELETED, brought_to, found, listed
from fixtures.metadata_service import metadata_settings
from fixtures.polling import eventually
from pydantic import SecretStr

WAIT_S = 90
WRITERS = 4
LOCK_TIMEOUT_MS = 300
SLACK_S = 30.0
"""A machine that is busy with other things; a writer that waited for the holder of the lock would wait for ever."""

ROWS = """
INSERT INTO remote_log_partition (topic_id, partition, topic, highest_leader_epoch, version)
SELECT gen_random_uuid(), n % 50, 'filler', 0, 1 FROM generate_series(1, 20000) n
"""


@dataclass(slots=True)
class Writers:
    """Each adds and finishes segments of its own partition, deletes every fifth, and looks up what it wrote."""

    rlmm: GrpcRemoteLogMetadataManager
    written: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]] = field(default_factory=dict)
    longest_s: float = 0.0
    rounds: int = 0
    ending: bool = False

    async def write(self, tip: TopicIdPartition) -> None:
        kept = self.written.setdefault(tip, [])
        number = 0
        while not self.ending:
            segment = builders.remote_segment(tip, number * 10, number * 10 + 9)
            if number % 5 == 4:
                await self._timed(segment, DELETED)
            else:
                kept.append(await self._timed(segment))
                assert await found(self.rlmm, tip, 0, number * 10) == segment.segment_id
            number += 1
            self.rounds += 1

    async def _timed(
        self, segment: RemoteLogSegmentMetadata, *state: object
    ) -> RemoteLogSegmentMetadata:
        began_s = time.monotonic()
        done = await brought_to(self.rlmm, segment, *state)  # type: ignore[arg-type]
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        return done

    async def go_on(self) -> None:
        """Every writer gets something done after now."""
        goal = self.rounds + 2 * WRITERS
        await eventually(lambda: self.rounds >= goal, timeout_s=WAIT_S)

    async def check(self) -> None:
        """All that was acknowledged is there, once, and nothing else."""
        for tip, kept in self.written.items():
            assert await listed(self.rlmm, tip) == kept
            assert await self.rlmm.highest_offset_for_epoch(tip, 0) is not None
            changes = {}
            async with aclosing(self.rlmm.watch_partition(tip)) as watch:  # type: ignore[type-var]
                async for change in watch:
                    changes[change.segment.segment_id] = change.segment  # type: ignore[union-attr]
                    if len(changes) == len(kept):
                        break
            assert list(changes.values()) == kept


@asynccontextmanager
async def writers(dsn: str) -> AsyncIterator[Writers]:
    """Writers through gRPC, at work; at the end they stop and everything they wrote is checked."""
    # Writers that give up would wait no longer, which is not what is to be shown.
    patient = DatabaseSettings(
        dsn=SecretStr(dsn), pool_size=6, lock_timeout_ms=60_000, statement_timeout_ms=60_000
    )
    settings = metadata_settings(dsn).model_copy(update={"database": patient})
    async with running_server(settings) as server:
        rlmm = GrpcRemoteLogMetadataManager()
        await rlmm.configure({"endpoints": f"127.0.0.1:{server.port}", "deadline.ms": "60000"})
        work = Writers(rlmm)
        try:
            async with asyncio.timeout(4 * WAIT_S), asyncio.TaskGroup() as group:
                for _ in range(WRITERS):
                    group.create_task(work.write(builders.topic_id_partition()))
                try:
                    await work.go_on()
                    yield work
                    await work.go_on()
                finally:
                    work.ending = True
            await work.check()
        finally:
            await rlmm.close()


@pytest.fixture
def filled_dsn(metadata_dsn: str) -> str:
    """A database with rows that a migration has to carry along."""
    with psycopg.connect(metadata_dsn, autocommit=True) as connection:
        connection.execute(ROWS)
    return metadata_dsn


def revision(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row is not None
    return str(row[0])


def columns(dsn: str) -> set[tuple[str, str]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        )
        return set(rows.fetchall())


async def migrated(dsn: str, to: str) -> None:
    """Migrates, again if it had to give way."""
    options = DatabaseOptions(dsn=dsn, pool_size=2)

    async def done() -> bool:
        await migrate(options, to)
        return True

    await eventually(done, timeout_s=WAIT_S)


async def test_migrations_go_back_and_forth_under_writers(filled_dsn: str) -> None:
    """T40: every step online, as far back as writers can work."""
    before = columns(filled_dsn)
    async with writers(filled_dsn) as work:
        for older in ("0002", "0001", "0002"):
            await migrated(filled_dsn, older)
            assert revision(filled_dsn) == older
            await work.go_on()
            await migrated(filled_dsn, "head")
            assert revision(filled_dsn) == head_revision()
            await work.go_on()
    assert columns(filled_dsn) == before
    assert work.longest_s < SLACK_S


@contextmanager
def long_transaction(dsn: str) -> Iterator[None]:
    """A reader that does not end: no migration of its table gets through, every writer does."""
    with psycopg.connect(dsn, application_name="a forgotten session") as connection:
        connection.execute("SELECT count(*) FROM remote_log_partition")
        yield


@pytest.mark.parametrize(("start", "to"), [("0003", "0002"), ("0002", "head")])
async def test_a_migration_gives_way_to_a_long_transaction_and_holds_up_nobody(
    filled_dsn: str, start: str, to: str
) -> None:
    """T40: writers wait behind a migration for its lock timeout at most; the schema stays whole; a repeat succeeds."""
    async with writers(filled_dsn) as work:
        await migrated(filled_dsn, start)
        before = (revision(filled_dsn), columns(filled_dsn))
        work.longest_s = 0.0
        with long_transaction(filled_dsn):
            options = DatabaseOptions(dsn=filled_dsn, pool_size=2, lock_timeout_ms=LOCK_TIMEOUT_MS)
            with pytest.raises(PreconditionError) as refused:
                await migrate(options, to)
            assert "(a forgotten session) uses remote_log_partition" in refused.value.message
            assert "run `aquifer-metadata migrate` again" in refused.value.message
            assert refused.value.metadata["found"] == before[0]
            assert (revision(filled_dsn), columns(filled_dsn)) == before
            await work.go_on()
            assert work.longest_s < LOCK_TIMEOUT_MS / 1000 + SLACK_S
        await migrated(filled_dsn, to)
        assert revision(filled_dsn) != before[0]
        await migrated(filled_dsn, "head")
