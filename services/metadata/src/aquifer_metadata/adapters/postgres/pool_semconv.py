"""What is measured of the connection pool, under the names of OpenTelemetry's semantic conventions for database clients."""

from typing import Final

from aquifer_rpc.semconv import Attribute, InstrumentKind, Metric

POOL_NAME: Final = Attribute(
    key="db.client.connection.pool.name", doc="The pool, as host:port/database."
)
CONNECTION_STATE: Final = Attribute(key="db.client.connection.state", doc="`used` or `idle`.")

CONNECTION_COUNT: Final = Metric(
    name="db.client.connection.count",
    unit="{connection}",
    kind=InstrumentKind.UP_DOWN_COUNTER,
    doc="Connections to PostgreSQL, those being opened included.",
    attributes=(POOL_NAME, CONNECTION_STATE),
)
CONNECTION_MAX: Final = Metric(
    name="db.client.connection.max",
    unit="{connection}",
    kind=InstrumentKind.UP_DOWN_COUNTER,
    doc="Most connections that the pool opens.",
    attributes=(POOL_NAME,),
)
PENDING_REQUESTS: Final = Metric(
    name="db.client.connection.pending_requests",
    unit="{request}",
    kind=InstrumentKind.UP_DOWN_COUNTER,
    doc="Transactions and statements that wait for a connection.",
    attributes=(POOL_NAME,),
)
TIMEOUTS: Final = Metric(
    name="db.client.connection.timeouts",
    unit="{timeout}",
    kind=InstrumentKind.COUNTER,
    doc="Waits for a connection that were given up, since all were in use for too long.",
    attributes=(POOL_NAME,),
)
CREATE_TIME: Final = Metric(
    name="db.client.connection.create_time",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time to open a connection; its count is that of connections opened.",
    attributes=(POOL_NAME,),
)
WAIT_TIME: Final = Metric(
    name="db.client.connection.wait_time",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time to get a connection from the pool, its test and its opening included.",
    attributes=(POOL_NAME,),
)
USE_TIME: Final = Metric(
    name="db.client.connection.use_time",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time from getting a connection to giving it back.",
    attributes=(POOL_NAME,),
)
INVALIDATIONS: Final = Metric(
    name="aquifer.db.connection.invalidations",
    unit="{connection}",
    kind=InstrumentKind.COUNTER,
    doc="Connections that were found broken and thrown away.",
    attributes=(POOL_NAME,),
)
