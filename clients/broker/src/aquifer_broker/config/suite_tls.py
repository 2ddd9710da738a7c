"""TLS between a broker and the services: made of the `aquifer.tls.*` keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aquifer_rpc.settings import TlsClientSettings, TlsServerSettings

from aquifer_broker.config.definitions import refusal

__all__ = ["check_tls", "client_tls", "role_tls", "server_tls"]

_PREFIX: Final = "aquifer."
_CA: Final = "aquifer.tls.ca.file"
_CERTIFICATE: Final = "aquifer.tls.certificate.file"
_KEY: Final = "aquifer.tls.key.file"
_NAME: Final = "aquifer.tls.server.name"


def check_tls(values: Mapping[str, Any]) -> None:
    """Checks that what was given is enough.

    Raises:
        InvalidConfigurationError: a key needs another one.
    """
    needed = {_CERTIFICATE: (_KEY, _CA), _KEY: (_CERTIFICATE,), _NAME: (_CA,)}
    for key, others in needed.items():
        for other in others:
            if values[key] and not values[other]:
                raise refusal(key, values[key], f"give {other} as well")


def client_tls(values: Mapping[str, Any]) -> TlsClientSettings | None:
    """How services are called; None: in plaintext."""
    if not values[_CA]:
        return None
    return TlsClientSettings(
        ca_file=Path(values[_CA]),
        certificate_file=_path(values[_CERTIFICATE]),
        key_file=_path(values[_KEY]),
        server_name=values[_NAME],
    )


def server_tls(values: Mapping[str, Any]) -> TlsServerSettings | None:
    """How BrokerLogService is served; None: in plaintext. It changes logs, so callers must show a certificate."""
    if not values[_CERTIFICATE]:
        return None
    return TlsServerSettings(
        certificate_file=Path(values[_CERTIFICATE]),
        key_file=Path(values[_KEY]),
        client_ca_file=Path(values[_CA]),
    )


def role_tls(values: Mapping[str, Any]) -> dict[str, str]:
    """The same as properties of a gRPC role, without the role's prefix."""
    return {
        key.removeprefix(_PREFIX): values[key]
        for key in (_CA, _CERTIFICATE, _KEY, _NAME)
        if values[key]
    }


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
