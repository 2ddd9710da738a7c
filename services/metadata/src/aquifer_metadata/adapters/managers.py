"""The RemoteLogMetadataManager to plug into a node by its dotted path; properties are strings (SR-5)."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, NoReturn

from aquifer_core.clock import SystemClock
from aquifer_core.errors import InvalidConfigurationError
from opentelemetry import trace

from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.adapters.postgres.schema import check_schema, migrate
from aquifer_metadata.adapters.postgres.tracing import trace_statements

_OF_THE_NODE = frozenset({"broker.id", "cluster.id", "log.dir"})
"""Handed to every plugin (K-4.1); not needed here."""
_NUMBERS = {
    "pool.size": "pool_size",
    "statement.timeout.ms": "statement_timeout_ms",
    "lock.timeout.ms": "lock_timeout_ms",
    "retry.after.ms": "retry_after_ms",
}
_KNOWN = frozenset({"dsn", "auto.migrate", *_NUMBERS})


def current_trace_id() -> str:
    """Trace of the work at hand, as 32 hex digits; empty when it is not traced."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else ""


class SqlRemoteLogMetadataManager(PostgresRemoteLogMetadataManager):
    """Facts about remote segments in PostgreSQL, without a service in between.

    Properties: `dsn` (as libpq takes it), `auto.migrate` (true), `pool.size` (10), `statement.timeout.ms` (10000),
    `lock.timeout.ms` (5000), `retry.after.ms` (500).
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._open = False

    async def configure(self, configs: Mapping[str, str]) -> None:
        """Connects, and brings the schema up to date or makes sure that it is.

        Raises:
            InvalidConfigurationError: a property is unknown, missing or refused, or configured already.
            PreconditionError: the schema does not fit.
            RemoteStorageUnavailableError: PostgreSQL does not answer.
        """
        if self._open:
            raise InvalidConfigurationError("configured already; make another one")
        options, auto_migrate = _options(configs)
        if auto_migrate:
            await migrate(options)
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database(options))
            trace_statements(database.engine.sync_engine)
            await check_schema(database)
            signal = await stack.enter_async_context(ChangeSignal(database))
            super().__init__(database, signal, clock=SystemClock(), trace_id=current_trace_id)
            self._stack = stack.pop_all()
        self._open = True

    def __getattr__(self, name: str) -> NoReturn:
        """Attributes exist once configured."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidConfigurationError("not configured yet; call configure first")

    async def close(self) -> None:
        """Releases everything; idempotent."""
        await self._stack.aclose()


def _options(configs: Mapping[str, str]) -> tuple[DatabaseOptions, bool]:
    for key in configs:
        if key not in _KNOWN and key not in _OF_THE_NODE:
            raise _refused(key, f"{key} is not a property; known are {', '.join(sorted(_KNOWN))}")
    if not configs.get("dsn"):
        raise _refused("dsn", "dsn is missing; give postgresql://user:password@host:port/database")
    numbers: dict[str, Any] = {
        field: _positive(key, configs[key]) for key, field in _NUMBERS.items() if key in configs
    }
    auto_migrate = configs.get("auto.migrate", "true").lower()
    if auto_migrate not in ("true", "false"):
        raise _refused("auto.migrate", f"auto.migrate={auto_migrate} is neither true nor false")
    return DatabaseOptions(dsn=configs["dsn"], **numbers), auto_migrate == "true"


def _positive(key: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise _refused(key, f"{key}={text} is not a whole number above 0")
    return int(text)


def _refused(key: str, message: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(message, metadata={"key": key})
