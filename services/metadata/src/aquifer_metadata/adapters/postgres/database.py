"""The connection pool, transactions, and how a PostgreSQL outage is ridden out."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import structlog
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    ErrorReason,
    InvalidRequestError,
    PreconditionError,
    RemoteStorageUnavailableError,
)
from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from aquifer_metadata.adapters.postgres.idle_connections import ping_idle_connections
from aquifer_metadata.adapters.postgres.pool_metrics import POOLS, PoolMetrics

logger = structlog.get_logger(__name__)

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

_CONFLICT = frozenset({"40001", "40P01"})
"""serialization_failure, deadlock_detected: the whole transaction is to be repeated."""
_BUSY = frozenset({"55P03", "57014"})
"""lock_not_available, query_canceled: a timeout of ours."""
_READ_ONLY = "25006"
"""read_only_sql_transaction: a standby answers; the primary is elsewhere."""
_UNSTORABLE = frozenset({"22021", "22P05", "54000"})
"""character_not_in_repertoire, untranslatable_character: NUL in a text or in JSON. program_limit_exceeded: a key of kilobytes."""
_SCHEMA = frozenset({"42P01", "42703"})
"""undefined_table, undefined_column."""
_WRITE: Final[Mapping[str, Any]] = {"isolation_level": "READ COMMITTED"}
_SNAPSHOT: Final[Mapping[str, Any]] = {
    "isolation_level": "REPEATABLE READ",
    "postgresql_readonly": True,
}
_RETURN_S = 5.0
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_OUTAGE_CLASSES = ("08", "53", "57P", "58")
"""Connection, resources (too many connections, disk full), shutdown and start-up, system errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """How PostgreSQL is used.

    Attributes:
        dsn: `postgresql://user:password@host:port/name?...`, as libpq takes it.
        pool_size: most connections for statements.
        pool_wait_s: longest wait for a free one.
        connect_timeout_s: longest time to connect.
        statement_timeout_ms: longest time of a statement.
        lock_timeout_ms: longest wait of a statement for a lock.
        attempts: tries of a transaction that met a conflict or a lost connection.
        retry_after_ms: told to callers when PostgreSQL does not answer.
    """

    dsn: str = field(repr=False)
    pool_size: int = 10
    pool_wait_s: float = 5.0
    connect_timeout_s: int = 3
    statement_timeout_ms: int = 10_000
    lock_timeout_ms: int = 5_000
    attempts: int = 4
    retry_after_ms: int = 500


class Database:
    """A pool of tested connections, with transactions that are retried where that is safe.

    Raises from `read`, `snapshot` and `write`:
        RemoteStorageUnavailableError: PostgreSQL does not answer (DATABASE_UNAVAILABLE).
        ConcurrentUpdateError: conflicts persisted through every attempt.
        PreconditionError: a table or column is missing (SCHEMA_MISMATCH).
        InvalidRequestError: PostgreSQL does not hold such a text, or not as a key.
    """

    def __init__(self, options: DatabaseOptions, pools: PoolMetrics = POOLS) -> None:
        self.options = options
        self.engine: AsyncEngine = create_async_engine(
            sqlalchemy_url(options.dsn),
            pool_size=options.pool_size,
            max_overflow=0,
            pool_timeout=options.pool_wait_s,
            pool_use_lifo=True,
            # Most work is one reading statement: it should not pay for a transaction nor for switching to none.
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
            hide_parameters=True,
            connect_args=connect_arguments(options),
        )
        ping_idle_connections(self.engine.sync_engine)
        self._pool = pools.record_of(self.engine.sync_engine)
        self._returns: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._pool.close()
        if self._returns:  # of callers that did not wait for it
            await asyncio.wait(self._returns, timeout=_RETURN_S)
        await self.engine.dispose()

    async def ping(self) -> None:
        """One round trip; raises like every other use."""

        async def select_one(connection: AsyncConnection) -> None:
            await connection.execute(text("SELECT 1"))

        await self.read(select_one)

    async def notify(self, channel: str, payload: str) -> None:
        """Sends a notification, outside any transaction."""

        async def send(connection: AsyncConnection) -> None:
            await connection.execute(_NOTIFY, {"channel": channel, "payload": payload})

        await self.read(send)

    async def read(self, work: Work[T]) -> T:
        """Runs reading statements, each on its own snapshot, without the cost of a transaction."""
        return await self._repeat(work)

    async def snapshot(self, work: Work[T]) -> T:
        """Runs reading statements that all see the same committed state."""
        return await self._repeat(work, transaction=_SNAPSHOT)

    async def write(self, work: Work[T]) -> T:
        """Runs a transaction; `work` may be run again from its beginning and must only touch the connection."""
        return await self._repeat(work, transaction=_WRITE)

    async def write_once(self, work: Work[T]) -> T:
        """Runs one statement that changes something and commits by itself. A lost answer is not asked for again."""
        return await self._repeat(work, commits=True)

    async def _repeat(
        self,
        work: Work[T],
        *,
        transaction: Mapping[str, Any] | None = None,
        commits: bool = False,
    ) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(work, transaction=transaction, commits=commits)
            except _RepeatableError as error:
                if attempt >= self.options.attempts:
                    raise error.final from error
                logger.info("transaction_repeated", attempt=attempt, error=error.final.message)
                await asyncio.sleep(random.uniform(0.2, 1.0) * 0.02 * 2**attempt)

    async def _attempt(
        self, work: Work[T], *, transaction: Mapping[str, Any] | None, commits: bool
    ) -> T:
        committing = False
        try:
            async with AsyncExitStack() as stack:
                with self._pool.wait():
                    connection = await _connected(self.engine)
                stack.push_async_callback(self._give_back, connection)
                if transaction is not None:
                    await _set_apart(connection, transaction)
                committing = commits
                async with _left_when_read_only(connection):
                    result = await work(connection)
                    if transaction is not None:
                        committing = True
                        await connection.commit()
                    return result
        except PoolTimeoutError as error:
            raise self._unavailable("every database connection is in use") from error
        except DBAPIError as error:
            raise self._translated(error, committing=committing) from error
        except OSError as error:
            raise self._unavailable(f"the database cannot be reached: {error}") from error

    async def _give_back(self, connection: AsyncConnection) -> None:
        """Returns a connection to the pool, also when the caller is cancelled meanwhile: else it would be lost to the pool."""
        returned = asyncio.create_task(connection.close())
        self._returns.add(returned)
        returned.add_done_callback(self._returned)
        await asyncio.shield(returned)

    def _returned(self, task: asyncio.Task[None]) -> None:
        self._returns.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waits for it, if anybody still does

    def _translated(self, error: DBAPIError, *, committing: bool) -> Exception:
        state: str | None = getattr(error.orig, "sqlstate", None)
        if state in _CONFLICT:
            return _RepeatableError(
                ConcurrentUpdateError(
                    "the database refused a conflicting transaction repeatedly",
                    retry_after_ms=self.options.retry_after_ms,
                )
            )
        if state in _SCHEMA:
            return PreconditionError(
                f"the database schema does not fit this service: {error.orig}",
                reason=ErrorReason.SCHEMA_MISMATCH,
            )
        if state in _UNSTORABLE or (state is None and isinstance(error, DataError)):
            return InvalidRequestError(
                f"the database cannot hold a text of the request: {error.orig}"
            )
        if state in _BUSY:
            return self._unavailable(f"the database is too slow: {error.orig}")
        if not _is_outage(error, state):
            return error
        unavailable = self._unavailable(f"the database does not answer: {error.orig}")
        # After a lost COMMIT nobody knows whether it happened: the caller repeats, idempotently.
        lost = committing and state != _READ_ONLY
        return unavailable if lost else _RepeatableError(unavailable)

    def _unavailable(self, message: str) -> RemoteStorageUnavailableError:
        return RemoteStorageUnavailableError(
            message,
            reason=ErrorReason.DATABASE_UNAVAILABLE,
            retry_after_ms=self.options.retry_after_ms,
        )


async def _connected(engine: AsyncEngine) -> AsyncConnection:
    try:
        return await engine.connect()
    except asyncio.CancelledError as cancelled:
        # Frames in a traceback would keep a socket that was being opened, and the server waiting, until they are collected.
        raise cancelled.with_traceback(None) from None


async def _set_apart(connection: AsyncConnection, transaction: Mapping[str, Any]) -> None:
    """Makes a connection one of transactions until it is returned. Not a matter of the engine, whose callers may be cancelled before they have it.

    Cut off in the middle it would be given to others who rely on statements that commit by themselves.
    """
    try:
        await connection.execution_options(**transaction)
    except BaseException:
        await connection.invalidate()
        raise


@asynccontextmanager
async def _left_when_read_only(connection: AsyncConnection) -> AsyncIterator[None]:
    """Closes a connection to a server that is no primary any more: it would be given out again, and refuse, as long as that server lives."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _READ_ONLY:
            await connection.invalidate(error)
        raise


class _RepeatableError(Exception):
    """An attempt that had no effect; `final` is what the caller sees when attempts run out."""

    def __init__(self, final: AquiferError) -> None:
        super().__init__(final.message)
        self.final = final


def _is_outage(error: DBAPIError, state: str | None) -> bool:
    if error.connection_invalidated or state == _READ_ONLY:
        return True
    if state is None:
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_OUTAGE_CLASSES)


def sqlalchemy_url(dsn: str) -> str:
    """The libpq address as SQLAlchemy wants it."""
    for scheme in ("postgresql://", "postgres://"):
        if dsn.startswith(scheme):
            return "postgresql+psycopg://" + dsn.removeprefix(scheme)
    return dsn


def connect_arguments(options: DatabaseOptions) -> dict[str, Any]:
    """What each connection is opened with: timeouts on both sides, and probes of a silent peer."""
    return {
        "connect_timeout": options.connect_timeout_s,
        "application_name": "aquifer-metadata",
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "options": (
            f"-c statement_timeout={options.statement_timeout_ms}"
            f" -c lock_timeout={options.lock_timeout_ms}"
            f" -c idle_in_transaction_session_timeout={options.statement_timeout_ms}"
            " -c timezone=UTC"
        ),
    }
