"""The connection pool is observed: how full it is, who waits, what is given up and what breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_metadata.adapters.postgres.database import Database, DatabaseOptions
from aquifer_metadata.adapters.postgres.pool_metrics import PoolMetrics
from fixtures.polling import eventually
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

POOL_SIZE = 2


class Measured:
    """A pool with a meter of its own."""

    def __init__(self, dsn: str, pool_wait_s: float) -> None:
        self._reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        options = DatabaseOptions(dsn=dsn, pool_size=POOL_SIZE, pool_wait_s=pool_wait_s)
        self.database = Database(options, PoolMetrics(provider.get_meter("test")))

    def values(self) -> dict[str, float]:
        """Every metric now, the count of histograms; names without their prefix, with the state of connections."""
        data = self._reader.get_metrics_data()
        found: dict[str, float] = {}
        for resource in data.resource_metrics if data else ():
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                name = metric.name.removeprefix("db.client.connection.")
                for point in metric.data.data_points:
                    labels = dict(point.attributes or {})
                    assert str(labels["db.client.connection.pool.name"]).startswith("127.0.0.1:")
                    state = labels.get("db.client.connection.state")
                    key = f"{name}.{state}" if state else name
                    if isinstance(point, NumberDataPoint):
                        found[key] = point.value
                    else:
                        found[key] = point.count
        return found


@asynccontextmanager
async def measured(dsn: str, *, pool_wait_s: float = 60.0) -> AsyncIterator[Measured]:
    pool = Measured(dsn, pool_wait_s)
    async with pool.database:
        yield pool


@asynccontextmanager
async def all_in_use(database: Database) -> AsyncIterator[asyncio.Event]:
    """Holds every connection until the event is set."""
    free, held = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT 1"))
        held.release()
        await free.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(POOL_SIZE):
            group.create_task(database.read(hold))
        for _ in range(POOL_SIZE):
            await held.acquire()
        try:
            yield free
        finally:
            free.set()


async def test_connections_in_use_and_idle_are_told_apart(database_dsn: str) -> None:
    async with measured(database_dsn) as pool:
        async with all_in_use(pool.database):
            values = pool.values()
            assert (values["count.used"], values["count.idle"]) == (POOL_SIZE, 0)
        values = pool.values()
        assert (values["count.used"], values["count.idle"]) == (0, POOL_SIZE)
        assert values["max"] == POOL_SIZE
        assert values["create_time"] == values["wait_time"] == values["use_time"] == POOL_SIZE
        assert "timeouts" not in values
    assert "count.used" not in pool.values(), "a closed pool is not shown"


async def test_who_waits_for_a_connection_is_pending_until_one_is_free(database_dsn: str) -> None:
    async with measured(database_dsn) as pool, all_in_use(pool.database) as free:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(pool.database.ping()) for _ in range(3)]
            await eventually(lambda: pool.values()["pending_requests"] == 3, timeout_s=60)
            waiting.pop().cancel()
            await eventually(lambda: pool.values()["pending_requests"] == 2, timeout_s=60)
            free.set()
        values = pool.values()
        assert values["pending_requests"] == 0
        assert values["wait_time"] == POOL_SIZE + 2
        assert values["create_time"] == POOL_SIZE


async def test_an_exhausted_pool_counts_those_it_sent_away(database_dsn: str) -> None:
    async with measured(database_dsn, pool_wait_s=0.1) as pool, all_in_use(pool.database):
        for times in (1, 2):
            with pytest.raises(RemoteStorageUnavailableError, match="in use"):
                await pool.database.ping()
            values = pool.values()
            assert (values["timeouts"], values["pending_requests"]) == (times, 0)
            assert values["wait_time"] == POOL_SIZE


async def test_a_broken_connection_is_counted_and_replaced(database_dsn: str) -> None:
    async with measured(database_dsn) as pool:

        async def break_(connection: AsyncConnection) -> None:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        with pytest.raises(RemoteStorageUnavailableError):
            await pool.database.write(break_)
        await pool.database.ping()
        values = pool.values()
        assert values["aquifer.db.connection.invalidations"] >= 1
        assert values["create_time"] >= 2
        assert values["count.used"] == 0
        assert values["max"] == POOL_SIZE


async def test_a_caller_that_leaves_at_once_takes_no_connection_along(metadata_dsn: str) -> None:
    """Cancelled in the middle of a statement, and again while its connection goes back."""
    async with measured(metadata_dsn) as pool:
        begun = asyncio.Event()

        async def sleep(connection: AsyncConnection) -> None:
            begun.set()
            await connection.execute(text("SELECT pg_sleep(60)"))

        for _ in range(POOL_SIZE):
            begun.clear()
            caller = asyncio.create_task(pool.database.read(sleep))
            await begun.wait()
            while not caller.done():
                caller.cancel()
                await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert pool.values().get("count.used", 0) == 0
