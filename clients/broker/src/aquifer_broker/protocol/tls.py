"""TLS of a listener."""

import ssl
from collections.abc import Callable
from pathlib import Path

from aquifer_core.errors import InvalidConfigurationError

__all__ = ["server_tls_context"]


def server_tls_context(value: Callable[[str], str | None]) -> ssl.SSLContext:
    """The context of SSL listeners from the `ssl.*` keys, which `value` looks up.

    Raises:
        InvalidConfigurationError: a file is missing or cannot be used.
    """
    keystore = value("ssl.keystore.location")
    if keystore is None:
        raise InvalidConfigurationError(
            "ssl.keystore.location is missing: an SSL listener needs a PEM file with its key and certificates",
            metadata={"key": "ssl.keystore.location", "value": ""},
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(Path(keystore), password=value("ssl.key.password"))
        truststore = value("ssl.truststore.location")
        if truststore is not None:
            context.load_verify_locations(truststore)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfigurationError(
            f"the files of the SSL listener cannot be used: {error}"
        ) from error
    modes = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }
    context.verify_mode = modes[value("ssl.client.auth") or "none"]
    return context
