"""HTTP connections to an S3 store that send a body for as long as its bytes move."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from aquifer_storage.adapters.s3_trust import TrustedAuthorities

_PIECE_BYTES: Final = 256 * 1024


class _SendsInPieces(HTTPConnection):
    """Bounds the silence while a body is sent, not the whole body.

    `socket.sendall` takes the socket's timeout for all that it is given, and urllib3 leaves the connect timeout in place until the
    request is sent: a large part over a slow link would end with it. Here each piece has `send_timeout_s` of its own.
    """

    send_timeout_s: float | None = None

    def send(self, data: Any) -> None:
        """Send bytes in pieces."""
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self.send_timeout_s)
        with memoryview(data).cast("B") as view:
            for start in range(0, len(view), _PIECE_BYTES):
                super().send(view[start : start + _PIECE_BYTES])


class _TlsSendsInPieces(_SendsInPieces, HTTPSConnection):
    """The same over TLS."""


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _SendsInPieces

    def _new_conn(self) -> Any:
        return _with_send_timeout(super()._new_conn(), self.timeout)


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsSendsInPieces

    def __init__(self, *args: Any, trust: TrustedAuthorities, **options: Any) -> None:
        super().__init__(*args, **options)
        self._trust = trust

    def _new_conn(self) -> Any:
        connection: Any = super()._new_conn()
        connection.ssl_context = self._trust.context()
        return _with_send_timeout(connection, self.timeout)


def connection_pools(
    timeout: urllib3.Timeout, trust: TrustedAuthorities | None, pool_options: Mapping[str, Any]
) -> Any:
    """Return urllib3's pool manager over such connections.

    Args:
        timeout: for connecting, and for the store's silence while it is read from or sent to.
        trust: whose certificates are believed, asked for each new connection; none: TLS is not used.
        pool_options: what else urllib3 takes.
    """
    pools = urllib3.PoolManager(timeout=timeout, **pool_options)
    by_scheme: dict[str, Any] = {"http": _HttpPool}
    if trust is not None:
        by_scheme["https"] = partial(_HttpsPool, trust=trust)
    pools.pool_classes_by_scheme = by_scheme
    return pools


def _with_send_timeout(connection: Any, timeout: urllib3.Timeout) -> Any:
    read_timeout = timeout.read_timeout
    connection.send_timeout_s = read_timeout if isinstance(read_timeout, int | float) else None
    return connection
