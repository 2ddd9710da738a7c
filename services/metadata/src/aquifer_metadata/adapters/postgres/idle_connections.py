"""Tests a pooled connection before it is used, when it has been idle.

SQLAlchemy's own pre-ping would add a round trip to every look-up. A connection used a moment ago is taken on trust: if it is
broken after all, the transaction is repeated on another one.
"""

import time
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

_TRUSTED_S = 1.0
_USED_AT = "aquifer_used_at_s"


def ping_idle_connections(engine: Engine) -> None:
    """Makes the pool of an engine test connections that nobody has used for a second."""

    def checkout(connection: DBAPIConnection, entry: ConnectionPoolEntry, proxy: Any) -> None:
        used_at_s = entry.info.get(_USED_AT)
        if used_at_s is None or time.monotonic() - used_at_s < _TRUSTED_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error

    def checkin(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info[_USED_AT] = time.monotonic()

    event.listen(engine, "checkout", checkout)
    event.listen(engine, "checkin", checkin)
