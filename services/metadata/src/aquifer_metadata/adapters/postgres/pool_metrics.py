"""Measures the connection pool: how full it is, who waits, for how long, and what breaks."""

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aquifer_rpc.semconv import Metric
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from sqlalchemy import event
from sqlalchemy.engine import URL, Dialect, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from aquifer_metadata.adapters.postgres import pool_semconv as names

_TAKEN_AT: Final = "aquifer_taken_at_s"

_Labels = tuple[tuple[str, str], ...]


class PoolMetrics:
    """The instruments of a meter, and the pools they look at."""

    def __init__(self, meter: Meter) -> None:
        self._pools: weakref.WeakSet[PoolRecord] = weakref.WeakSet()
        self.timeouts = meter.create_counter(*_declared(names.TIMEOUTS))
        self.invalidations = meter.create_counter(*_declared(names.INVALIDATIONS))
        self.create_time = meter.create_histogram(*_declared(names.CREATE_TIME))
        self.wait_time = meter.create_histogram(*_declared(names.WAIT_TIME))
        self.use_time = meter.create_histogram(*_declared(names.USE_TIME))
        for metric, values in (
            (names.CONNECTION_COUNT, PoolRecord.connections),
            (names.CONNECTION_MAX, PoolRecord.most),
            (names.PENDING_REQUESTS, PoolRecord.waiting),
        ):
            name, unit, doc = _declared(metric)
            meter.create_observable_up_down_counter(name, [self._observer(values)], unit, doc)

    def record_of(self, engine: Engine) -> "PoolRecord":
        """Begins to measure the pool of an engine; until the record is closed or forgotten."""
        record = PoolRecord(self, engine)
        self._pools.add(record)
        return record

    def forget(self, record: "PoolRecord") -> None:
        """Leaves a pool out from now on."""
        self._pools.discard(record)

    def _observer(
        self, values: Callable[["PoolRecord"], dict[_Labels, int]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            # Pools of one name count together.
            total: Counter[_Labels] = Counter()
            for pool in list(self._pools):
                total.update(values(pool))
            return [Observation(value, dict(labels)) for labels, value in total.items()]

        return observe


class PoolRecord:
    """One pool: `wait` goes around every wait for a connection, everything else is heard from the pool."""

    def __init__(self, owner: PoolMetrics, engine: Engine) -> None:
        self._owner = owner
        self._engine = engine
        self._pending = 0
        self._name: _Labels = ((names.POOL_NAME.key, pool_name(engine.url)),)
        self._labels = dict(self._name)
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "checkout", self._checkout)
        event.listen(engine, "checkin", self._checkin)
        event.listen(engine, "invalidate", self._invalidate)

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Measures a wait for a connection; failed attempts to connect are not counted as waits."""
        began_s = time.monotonic()
        self._pending += 1
        try:
            yield
        except PoolTimeoutError:
            self._owner.timeouts.add(1, self._labels)
            raise
        finally:
            self._pending -= 1
        self._owner.wait_time.record(time.monotonic() - began_s, self._labels)

    def close(self) -> None:
        """Takes the pool out of the gauges; idempotent."""
        self._owner.forget(self)

    def connections(self) -> dict[_Labels, int]:
        """Connections in use and idle."""
        pool = self._pool()
        key = names.CONNECTION_STATE.key
        return {
            (*self._name, (key, "used")): pool.checkedout(),
            (*self._name, (key, "idle")): pool.checkedin(),
        }

    def most(self) -> dict[_Labels, int]:
        """Most connections that can be open."""
        return {self._name: self._pool().size()}

    def waiting(self) -> dict[_Labels, int]:
        """How many wait."""
        return {self._name: self._pending}

    def _pool(self) -> QueuePool:
        # The engine makes a new pool when all connections were lost.
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        return pool

    def _connect(
        self,
        dialect: Dialect,
        entry: ConnectionPoolEntry,
        arguments: tuple[Any, ...],
        parameters: dict[str, Any],
    ) -> DBAPIConnection:
        began_s = time.monotonic()
        connection = dialect.connect(*arguments, **parameters)
        self._owner.create_time.record(time.monotonic() - began_s, self._labels)
        return connection

    def _checkout(self, _: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: Any) -> None:
        entry.info[_TAKEN_AT] = time.monotonic()

    def _checkin(self, _: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        taken_at_s = entry.info.pop(_TAKEN_AT, None)
        if taken_at_s is not None:
            self._owner.use_time.record(time.monotonic() - taken_at_s, self._labels)

    def _invalidate(
        self, _: DBAPIConnection, _entry: ConnectionPoolEntry, _error: BaseException | None
    ) -> None:
        self._owner.invalidations.add(1, self._labels)


def pool_name(url: URL) -> str:
    """What a pool of this address is called."""
    return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def _declared(metric: Metric) -> tuple[str, str, str]:
    return metric.name, metric.unit, metric.doc


POOLS: Final = PoolMetrics(metrics.get_meter("aquifer_metadata"))
"""Those of the process."""
