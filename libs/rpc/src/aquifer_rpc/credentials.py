"""TLS material from files."""

from pathlib import Path

import grpc
from aquifer_core.errors import InvalidConfigurationError

from aquifer_rpc.settings import TlsClientSettings, TlsServerSettings


def server_credentials(settings: TlsServerSettings | None) -> grpc.ServerCredentials | None:
    """Credentials of a server; None for plaintext.

    Raises:
        InvalidConfigurationError: a file cannot be read.
    """
    if settings is None:
        return None
    authorities = _read(settings.client_ca_file)
    return grpc.ssl_server_credentials(
        [(_read(settings.key_file) or b"", _read(settings.certificate_file) or b"")],
        root_certificates=authorities,
        require_client_auth=authorities is not None,
    )


def client_credentials(settings: TlsClientSettings | None) -> grpc.ChannelCredentials | None:
    """Credentials of a client; None for plaintext.

    Raises:
        InvalidConfigurationError: a file cannot be read.
    """
    if settings is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read(settings.ca_file),
        private_key=_read(settings.key_file),
        certificate_chain=_read(settings.certificate_file),
    )


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidConfigurationError(
            f"{path} cannot be read: {error.strerror}; name a readable PEM file",
            metadata={"key": "tls"},
        ) from error
