"""The primary is gone and a standby takes over, behind the same address (T37)."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import builders
import psycopg
import pytest
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import ErrorReason, RemoteStorageUnavailableError
from aquifer_metadata.app import running_server
from aquifer_standalone import postgres as embedded
from aquifer_standalone.ports import hold_port
from aquifer_standalone.postgres import EmbeddedPostgres
from aquifer_standalone.programs import run_program
from contract.remote_log_metadata.steps import brought_to, found
from fixtures.metadata_service import metadata_settings
from fixtures.network import TcpProxy
from fixtures.polling import eventually
from fixtures.supervised import running

WAIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A primary whose commits wait for its standby, and the one address of both.

    Attributes:
        dsn: the database, wherever it is.
        primary, standby: the servers themselves.
    """

    proxy: TcpProxy
    dsn: str
    primary: EmbeddedPostgres
    standby: EmbeddedPostgres
    standby_port: int

    async def lose_primary(self) -> None:
        """Kill it, and send everybody to the standby, which is read-only."""
        [file] = self.primary.root.rglob("postmaster.pid")
        os.kill(int(file.read_text().splitlines()[0]), signal.SIGQUIT)
        await self.proxy.turn_to(self.standby_port)

    async def promote(self) -> None:
        """Make the standby the primary."""
        await tell(self.standby.dsn, f"SELECT pg_promote(true, {WAIT_S})")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    first, second = hold_port(), hold_port()
    primary = EmbeddedPostgres(tmp_path / "primary", first, fsync=False)
    with running(primary.spec(), primary.root):
        await copy_of(primary, tmp_path / "standby")
        standby = EmbeddedPostgres(tmp_path / "standby", second, fsync=False, name="standby")
        with running(standby.spec(), standby.root):
            await tell(
                primary.dsn,
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
                "SELECT pg_reload_conf()",
            )
            async with TcpProxy(first.number) as proxy:
                yield Pair(
                    proxy=proxy,
                    dsn=primary.dsn.replace(f":{first.number}/", f":{proxy.port}/"),
                    primary=primary,
                    standby=standby,
                    standby_port=second.number,
                )


async def copy_of(primary: EmbeddedPostgres, root: Path) -> None:
    """Make the data of a server that will follow a running one."""
    data_dir = root / "postgres"
    data_dir.mkdir(mode=0o700, parents=True)
    shutil.copy(primary.root / "postgres.password", root)
    command = [str(embedded._BINARIES / "pg_basebackup"), "--pgdata", str(data_dir)]
    command += ["--dbname", primary.dsn, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
    ended = await run_program(command, timeout_s=WAIT_S)
    assert ended.exit_code == 0, ended.output
    owner = (primary.root / "postgres").stat()
    for path in (data_dir, *data_dir.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)


async def tell(dsn: str, *statements: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            await connection.execute(statement.encode())


async def test_a_promoted_standby_is_used_and_knows_everything_acknowledged(pair: Pair) -> None:
    """Until it is promoted it refuses writes, which callers see as an outage."""
    partition = builders.topic_id_partition()
    first, second, third = (
        builders.remote_segment(partition, at, at + 9) for at in range(0, 30, 10)
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server(metadata_settings(pair.dsn)))
        rlmm = GrpcRemoteLogMetadataManager()
        stack.push_async_callback(rlmm.close)
        await rlmm.configure({"endpoints": f"127.0.0.1:{server.port}", "max.attempts": "1"})
        await brought_to(rlmm, first)
        await brought_to(rlmm, second)
        await pair.lose_primary()
        with pytest.raises(RemoteStorageUnavailableError) as refused:
            await brought_to(rlmm, third)
        assert refused.value.reason is ErrorReason.DATABASE_UNAVAILABLE
        await pair.promote()

        async def is_copied() -> bool:
            await brought_to(rlmm, third)
            return True

        await eventually(is_copied, timeout_s=WAIT_S)
        for segment in (first, second, third):
            offset = segment.start_offset
            assert await found(rlmm, partition, 0, offset) == segment.segment_id
        await eventually(lambda: server.ready, timeout_s=WAIT_S)
