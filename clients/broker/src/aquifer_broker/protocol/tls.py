"""TLS of the listeners for Kafka clients."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.tls_files import TlsFiles

__all__ = ["ListenerTls"]

logger = structlog.get_logger(__name__)

_KEYSTORE: Final = "ssl.keystore.location"
_TRUSTSTORE: Final = "ssl.truststore.location"
_CLIENT_AUTH: Final = "ssl.client.auth"
_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class ListenerTls:
    """What new connections of SSL listeners are made with: key, certificates and authorities as of the last look at the files.

    Connections that exist keep what they were made with. Files that do not fit together, or cannot be read, are
    refused, and the former ones stay in use (`TlsFiles`).

    Attributes:
        interval_s: how long after one look the next one is due.
        context: for `create_server`.
    """

    def __init__(self, value: Callable[[str], str | None], *, interval_s: float = 5.0) -> None:
        """Reads the files that the `ssl.*` keys name, which `value` looks up.

        Raises:
            InvalidConfigurationError: a key is missing, or a file is missing or cannot be used.
        """
        self.interval_s = interval_s
        self._keystore = Path(_needed(_KEYSTORE, value(_KEYSTORE)))
        self._password = value("ssl.key.password")
        self._verify_mode = _MODES[value(_CLIENT_AUTH) or "none"]
        self._truststore = _truststore(value(_TRUSTSTORE), self._verify_mode)
        try:
            self._files = TlsFiles(
                authorities=self._truststore,
                certificates=self._keystore,
                key=self._keystore,
                password=self._password,
                interval_s=interval_s,
            )
            self._made_of = self._files.material
            self._newest = self._made()
        except (InvalidConfigurationError, OSError, ValueError) as error:
            raise InvalidConfigurationError(
                f"the files of the SSL listener cannot be used: {error}",
                metadata={"key": _KEYSTORE, "value": str(self._keystore)},
            ) from error
        self._refused = False
        self.context: ssl.SSLContext = _ContextOfTheMoment(lambda: self._newest)

    async def look(self) -> None:
        """Looks at the files; those that changed count from the next connection on. Never fails."""
        self._files.look()
        material = self._files.material
        if material is self._made_of:
            return
        try:
            self._newest = self._made()
        except (OSError, ValueError) as error:
            # Replaced again since they were read, or too weak for this side; the next look tries once more.
            if not self._refused:
                logger.warning("tls_files_refused", files=[str(self._keystore)], error=str(error))
            self._refused = True
            return
        self._made_of = material
        self._refused = False

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # With no password at all, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(self._keystore, password=self._password or "")
        if self._truststore is not None:
            context.load_verify_locations(self._truststore)
        context.verify_mode = self._verify_mode
        return context


class _ContextOfTheMoment(ssl.SSLContext):
    """Begins every connection with the newest context: event loops keep the one that a server was made with.

    Asyncio and uvloop ask the context of a server for nothing but this.
    """

    def __new__(cls, newest: Callable[[], ssl.SSLContext]) -> "_ContextOfTheMoment":
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._newest_context = newest
        return made

    def __init__(self, newest: Callable[[], ssl.SSLContext]) -> None:
        del newest

    _newest_context: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._newest_context().wrap_bio(*args, **kwargs)


def _needed(key: str, location: str | None) -> str:
    if not location:
        raise InvalidConfigurationError(
            f"{key} is missing: an SSL listener needs a PEM file with its key and certificates",
            metadata={"key": key, "value": ""},
        )
    return location


def _truststore(location: str | None, mode: ssl.VerifyMode) -> Path | None:
    if location:
        return Path(location)
    if mode is not ssl.CERT_NONE:
        raise InvalidConfigurationError(
            f"{_TRUSTSTORE} is missing: without it no certificate that {_CLIENT_AUTH} asks for would be taken;"
            " give a PEM file with the authorities of the clients",
            metadata={"key": _TRUSTSTORE, "value": ""},
        )
    return None
