"""Connections that answer, but not as they should, are not given out for ever."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from contract.remote_log_metadata.steps import brought_to, found
from fixtures.polling import eventually
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

LEAST_WAITS = 2
"""Of a use of a connection: for the answer, and for its return."""


@pytest.fixture
async def one_connection(metadata_dsn: str) -> AsyncIterator[Database]:
    """A pool that always gives out the same connection, as a full one does to whoever comes first."""
    async with Database(DatabaseOptions(dsn=metadata_dsn, pool_size=1)) as database:
        yield database


def manager(database: Database) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        database, ChangeSignal(database), clock=SystemClock(), trace_id=lambda: ""
    )


async def test_a_session_on_a_server_that_is_no_primary_any_more_is_left(
    one_connection: Database,
) -> None:
    """T37: an address that leads elsewhere by now, while the old server still answers, says so to writers for ever."""
    await one_connection.read(
        lambda connection: connection.execute(text("SET default_transaction_read_only = on"))
    )
    partition = builders.topic_id_partition()
    segment = await brought_to(manager(one_connection), builders.remote_segment(partition, 0, 9))
    assert await found(manager(one_connection), partition, 0, 5) == segment.segment_id


@pytest.mark.parametrize("kind", ["read", "snapshot", "write"])
async def test_callers_that_give_up_at_any_moment_leave_the_connection_as_it_was(
    one_connection: Database,
    kind: str,
    no_collection: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it is lost to the pool, or what later callers write through it is never committed."""
    # As when the event loop is busy: the driver lets others run wherever it could.
    monkeypatch.setattr("psycopg.waiting.MAX_BUSY_TIME", 0.0)
    use = getattr(one_connection, kind)
    pool = one_connection.engine.pool
    for wait in count():
        used = CutOff(use(lambda connection: connection.scalar(text("SELECT 1"))), wait)
        task = asyncio.create_task(used.run())
        await asyncio.wait([task])
        await eventually(lambda: pool.checkedout() == 0)  # type: ignore[attr-defined]
        assert await one_connection.read(is_committing_alone)
        if not task.cancelled():
            break
    assert wait >= LEAST_WAITS
    assert task.result() == 1


@dataclass(frozen=True, slots=True)
class CutOff:
    """A coroutine that is cancelled where it waits for that time, counted from 0; it may have ended before."""

    coroutine: Coroutine[Any, Any, Any]
    wait: int

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        go_on: Callable[[], Any] = partial(self.coroutine.send, None)
        for number in count():
            try:
                awaited = go_on()
            except StopIteration as ended:
                return ended.value
            if number == self.wait:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield awaited
            except BaseException as error:
                go_on = partial(self.coroutine.throw, error)
            else:
                go_on = partial(self.coroutine.send, None)
        return None


async def is_committing_alone(connection: AsyncConnection) -> bool:
    pooled = connection.sync_connection
    assert pooled is not None
    driver = pooled.connection.driver_connection
    assert driver is not None
    return bool(driver.autocommit)
