"""Bringing the database schema to the version of this service, and refusing any other."""

import asyncio
from pathlib import Path
from typing import Final

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from aquifer_core.errors import (
    ErrorReason,
    PreconditionError,
    RemoteStorageUnavailableError,
)
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError, PendingRollbackError
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
_TRY_MIGRATION_LOCK: Final = text("SELECT pg_try_advisory_lock(:key)")
_LOCK_POLL_S: Final = 0.1

_GAVE_WAY = frozenset({"55P03", "40P01"})
"""lock_not_available, deadlock_detected."""

# Those that are in the way longest come first. Another database of the server is nobody's business. The building of an index waits for
# all who may still read what was before it, whatever they use.
_OLDEST_HOLDERS = text("""
SELECT a.pid, a.application_name, min(c.relname) AS relname,
  extract(epoch FROM clock_timestamp() - a.xact_start)::int AS age_s
FROM pg_stat_activity a
LEFT JOIN pg_locks l ON l.pid = a.pid AND l.granted AND l.database = a.datid
LEFT JOIN pg_class c ON c.oid = l.relation AND c.relname = ANY(:tables)
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND (c.relname IS NOT NULL OR a.backend_xmin IS NOT NULL)
GROUP BY a.pid, a.application_name, a.xact_start
ORDER BY min(c.relname) IS NULL, a.xact_start LIMIT 3
""")


async def migrate(
    options: DatabaseOptions,
    revision: str = "head",
    *,
    lock_wait_s: float = 60.0,
    index_wait_s: float = 600.0,
) -> None:
    """Brings the schema to a revision, forward or back; idempotent, safe from several replicas at once.

    Each step is a transaction of its own. Statements wait at most `options.lock_timeout_ms` for a table lock, so that a migration gives way to
    traffic instead of blocking it; run it again then. Indexes of large tables are built beside traffic, see `migrations.online_indexes`.

    Args:
        options: the database.
        revision: `head`, `base` or the name of one.
        lock_wait_s: how long to wait for a migration that another process carries out.
        index_wait_s: how long the building of an index waits for transactions of others to end; nobody waits for it meanwhile.

    Raises:
        PreconditionError: the schema is newer than this service knows, another migration holds the lock, or a table is in
            use for longer than the lock timeout.
        RemoteStorageUnavailableError: PostgreSQL does not answer, or the connection broke; a repeat goes on.
    """
    async with Database(options) as database:
        await database.read(_wait_until_reachable)
    engine = create_async_engine(
        sqlalchemy_url(options.dsn), poolclass=NullPool, connect_args=_arguments(options)
    )
    try:
        async with engine.connect() as connection:
            await _take_migration_lock(connection, lock_wait_s)
            await connection.run_sync(_refuse_newer)
            await connection.rollback()
            await _run_giving_way(connection, revision, index_wait_s)
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
    # A migration may take long, whatever the user's default; only its waits for locks are bounded.
    arguments["options"] = f"-c statement_timeout=0 -c lock_timeout={options.lock_timeout_ms}"
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
    """Takes the lock for as long as the connection that migrates is open, so that both end together.

    It is asked for again and again: a statement that waits keeps a snapshot, and the building of an index waits for all snapshots to end.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while not await connection.scalar(_TRY_MIGRATION_LOCK, {"key": _MIGRATION_LOCK}):
        await connection.rollback()
        if loop.time() >= deadline_s:
            raise PreconditionError(
                f"another migration has held the lock for {wait_s:g} s; try again when it is done",
                reason=ErrorReason.SCHEMA_MISMATCH,
            )
        await asyncio.sleep(_LOCK_POLL_S)
    await connection.commit()


async def _run_giving_way(connection: AsyncConnection, revision: str, index_wait_s: float) -> None:
    try:
        await connection.run_sync(_run, revision, index_wait_s)
        await connection.commit()
    except (OperationalError, PendingRollbackError) as error:
        cause = _first_cause(error)
        if connection.invalidated:
            raise RemoteStorageUnavailableError(
                f"the database connection broke while the schema was migrated: {cause}; a repeat goes on from there",
                reason=ErrorReason.DATABASE_UNAVAILABLE,
            ) from cause
        if getattr(getattr(cause, "orig", None), "sqlstate", None) not in _GAVE_WAY:
            raise
        raise await _gave_way(connection) from error


def _first_cause(error: BaseException) -> BaseException:
    """What broke the connection; whoever tidies up after it complains as well."""
    context = error.__context__
    return context if isinstance(error, PendingRollbackError) and context else error


async def _gave_way(connection: AsyncConnection) -> PreconditionError:
    await connection.rollback()
    found = await connection.run_sync(_current_revision)
    holders = await _oldest_holders(connection)
    return PreconditionError(
        f"a table to be migrated is in use for longer than the lock timeout; the schema is whole at {found}, and"
        f" traffic goes on. {holders}; let that end or end it with pg_terminate_backend, then run"
        " `aquifer-metadata migrate` again",
        reason=ErrorReason.SCHEMA_MISMATCH,
        metadata={"found": found or "", "expected": head_revision()},
    )


async def _oldest_holders(connection: AsyncConnection) -> str:
    """Who seems to be in the way, for people."""
    rows = await connection.execute(_OLDEST_HOLDERS, {"tables": list(metadata.tables)})
    found = [
        f"process {row.pid} ({row.application_name or 'unnamed'}) uses {row.relname or 'the database'} since {row.age_s} s"
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


def _run(connection: Connection, revision: str, index_wait_s: float) -> None:
    configuration = _configuration()
    configuration.attributes["connection"] = connection
    configuration.attributes["index_wait_s"] = index_wait_s
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
