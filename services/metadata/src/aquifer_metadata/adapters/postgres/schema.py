"""Bringing the database schema to the version of this service, and refusing any other."""

from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from aquifer_core.errors import ErrorReason, PreconditionError
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from aquifer_metadata.adapters.postgres.database import (
    Database,
    DatabaseOptions,
    connect_arguments,
    sqlalchemy_url,
)
from aquifer_metadata.adapters.postgres.tables import metadata

logger = structlog.get_logger(__name__)

_MIGRATION_LOCK = 4_919_405_001
"""Key of the advisory lock that lets one replica migrate while the others wait."""

_GAVE_WAY = frozenset({"55P03", "40P01"})
"""lock_not_available, deadlock_detected."""

# Those that are in the way longest come first. Another database of the server is nobody's business.
_OLDEST_HOLDERS = text("""
SELECT DISTINCT a.pid, a.application_name, a.xact_start, c.relname,
  extract(epoch FROM clock_timestamp() - a.xact_start)::int AS age_s
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_class c ON c.oid = l.relation
WHERE l.granted AND l.pid <> pg_backend_pid() AND c.relname = ANY(:tables)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY a.xact_start LIMIT 3
""")


async def migrate(
    options: DatabaseOptions, revision: str = "head", *, lock_wait_s: float = 60.0
) -> None:
    """Brings the schema to a revision, forward or back; idempotent, safe from several replicas at once.

    Each step is a transaction of its own. Statements wait at most `options.lock_timeout_ms` for a table lock, so that a migration gives way to
    traffic instead of blocking it; run it again then.

    Raises:
        PreconditionError: the schema is newer than this service knows, another migration holds the lock, or a table is in
            use for longer than the lock timeout.
    """
    async with Database(options) as database:
        await database.read(_wait_until_reachable)
    engine = create_async_engine(
        sqlalchemy_url(options.dsn), poolclass=NullPool, connect_args=_arguments(options)
    )
    try:
        async with engine.connect() as lock, engine.connect() as connection:
            await _take_migration_lock(lock, lock_wait_s)
            await connection.run_sync(_refuse_newer)
            await connection.rollback()
            await _run_giving_way(connection, revision)
            await lock.rollback()
    finally:
        await engine.dispose()
    logger.info("schema_migrated", revision=revision)


async def check_schema(database: Database) -> None:
    """Makes sure that the schema is exactly the one this service was written for.

    Raises:
        PreconditionError: it is not (SCHEMA_MISMATCH); the text says what to do.
    """
    found = await database.read(lambda connection: connection.run_sync(_current_revision))
    expected = head_revision()
    if found == expected:
        return
    known = {script.revision for script in _scripts().walk_revisions()}
    remedy = (
        "run `aquifer-metadata migrate`"
        if found is None or found in known
        else "it is newer: upgrade this service"
    )
    raise _mismatch(
        found, f"the database schema is {found}, this service needs {expected}; {remedy}"
    )


def head_revision() -> str:
    """The revision this service was written for."""
    head = _scripts().get_current_head()
    assert head is not None
    return head


def _arguments(options: DatabaseOptions) -> dict[str, object]:
    arguments = connect_arguments(options)
    # A migration may take long; only its waits for locks are bounded.
    arguments["options"] = f"-c lock_timeout={options.lock_timeout_ms}"
    return arguments


def _configuration() -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    configuration.set_main_option("path_separator", "os")
    return configuration


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_configuration())


async def _wait_until_reachable(connection: AsyncConnection) -> None:
    await connection.execute(text("SELECT 1"))


async def _take_migration_lock(connection: AsyncConnection, wait_s: float) -> None:
    await connection.execute(text(f"SET LOCAL lock_timeout = {int(wait_s * 1000)}"))
    try:
        await connection.execute(
            text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
        )
    except OperationalError as error:
        raise PreconditionError(
            f"another migration has held the lock for {wait_s:g} s; try again when it is done",
            reason=ErrorReason.SCHEMA_MISMATCH,
        ) from error


async def _run_giving_way(connection: AsyncConnection, revision: str) -> None:
    try:
        await connection.run_sync(_run, revision)
        await connection.commit()
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) not in _GAVE_WAY:
            raise
        await connection.rollback()
        found = await connection.run_sync(_current_revision)
        holders = await _oldest_holders(connection)
        raise PreconditionError(
            f"a table to be migrated is in use for longer than the lock timeout; the schema is whole at {found}, and"
            f" traffic goes on. {holders}; let that end or end it with pg_terminate_backend, then run"
            " `aquifer-metadata migrate` again",
            reason=ErrorReason.SCHEMA_MISMATCH,
            metadata={"found": found or "", "expected": head_revision()},
        ) from error


async def _oldest_holders(connection: AsyncConnection) -> str:
    """Who seems to be in the way, for people."""
    rows = await connection.execute(_OLDEST_HOLDERS, {"tables": list(metadata.tables)})
    found = [
        f"process {row.pid} ({row.application_name or 'unnamed'}) uses {row.relname} since {row.age_s} s"
        for row in rows
    ]
    return "; ".join(found) or "Nobody uses it any more"


def _current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(connection: Connection) -> None:
    found = _current_revision(connection)
    known = {script.revision for script in _scripts().walk_revisions()}
    if found is not None and found not in known:
        raise _mismatch(
            found,
            f"the database schema is {found}, which this service does not know; upgrade this service",
        )


def _run(connection: Connection, revision: str) -> None:
    configuration = _configuration()
    configuration.attributes["connection"] = connection
    back = _is_back(revision, _current_revision(connection))
    # Inside a transaction the steps would not have one each.
    connection.rollback()
    if back:
        command.downgrade(configuration, revision)
    else:
        command.upgrade(configuration, revision)


def _is_back(revision: str, current: str | None) -> bool:
    if revision in ("base", "head") or revision.startswith(("-", "+")):
        return revision[0] in "b-"
    older = {each.revision for each in _scripts().walk_revisions(head=current or "base")}
    return revision in older


def _mismatch(found: str | None, message: str) -> PreconditionError:
    return PreconditionError(
        message,
        reason=ErrorReason.SCHEMA_MISMATCH,
        metadata={"found": found or "", "expected": head_revision()},
    )
