"""Configuration of the gRPC role implementations: string properties, as Kafka hands them to plugins (SR-4, SR-5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.settings import GrpcClientSettings, TlsClientSettings

# The RemoteLogManager of a node adds these to what stands below the role's prefix.
_PASSED_ALONG: Final = frozenset({"broker.id", "cluster.id", "log.dir"})
_ENDPOINTS: Final = "endpoints"
_DEADLINE: Final = "deadline.ms"
_STREAM_DEADLINE: Final = "stream.deadline.ms"
_MAX_ATTEMPTS: Final = "max.attempts"
_TLS_CA: Final = "tls.ca.file"
_TLS_CERTIFICATE: Final = "tls.certificate.file"
_TLS_KEY: Final = "tls.key.file"
_TLS_NAME: Final = "tls.server.name"
_KNOWN: Final = frozenset(
    {
        _ENDPOINTS,
        _DEADLINE,
        _STREAM_DEADLINE,
        _MAX_ATTEMPTS,
        _TLS_CA,
        _TLS_CERTIFICATE,
        _TLS_KEY,
        _TLS_NAME,
    }
)
_MAX_INT32: Final = 2**31 - 1
_MAX_PORT: Final = 65_535
_DEFAULT_DEADLINE_MS: Final = 30_000
_DEFAULT_STREAM_DEADLINE_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRoleConfig:
    """What a gRPC role implementation needs.

    Attributes:
        endpoints: `endpoints`, addresses as host:port, separated by commas.
        deadline_s: `deadline.ms` (30000), of calls with one answer.
        stream_deadline_s: `stream.deadline.ms` (600000), of calls that move the bytes of a segment.
        max_attempts: `max.attempts` (5), of one call, the first included.
        tls: `tls.ca.file`, `tls.certificate.file`, `tls.key.file`, `tls.server.name`; plaintext without any.
    """

    endpoints: tuple[str, ...]
    deadline_s: float
    stream_deadline_s: float
    max_attempts: int
    tls: TlsClientSettings | None

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> "RemoteRoleConfig":
        """Reads the properties below a role's prefix.

        Raises:
            InvalidConfigurationError: a key is unknown, `endpoints` is missing, or a value is refused.
        """
        for key in configs:
            if key not in _KNOWN and key not in _PASSED_ALONG:
                raise _refused(key, f"{key} is not known here; remove it")
        endpoints = tuple(
            part.strip() for part in configs.get(_ENDPOINTS, "").split(",") if part.strip()
        )
        if not endpoints:
            raise _refused(_ENDPOINTS, "endpoints is missing; give host:port, or several of them")
        for endpoint in endpoints:
            _check_address(endpoint)
        return cls(
            endpoints=endpoints,
            deadline_s=_positive(configs, _DEADLINE, _DEFAULT_DEADLINE_MS) / 1000,
            stream_deadline_s=_positive(configs, _STREAM_DEADLINE, _DEFAULT_STREAM_DEADLINE_MS)
            / 1000,
            max_attempts=_positive(configs, _MAX_ATTEMPTS, 5),
            tls=_tls(configs),
        )

    def client_settings(self) -> GrpcClientSettings:
        """Settings of the channel."""
        return GrpcClientSettings(
            tls=self.tls, deadline_s=self.deadline_s, max_attempts=self.max_attempts
        )


def _positive(configs: Mapping[str, str], key: str, default: int) -> int:
    text = configs.get(key)
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) <= _MAX_INT32:
        raise _refused(key, f"{key}={text}: give a whole number from 1 to {_MAX_INT32}")
    return int(text)


def _check_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _MAX_PORT:
        raise _refused(_ENDPOINTS, f"endpoints={text}: give host:port, or several with commas")


def _tls(configs: Mapping[str, str]) -> TlsClientSettings | None:
    if not any(key.startswith("tls.") for key in configs):
        return None
    for given, lacking in ((_TLS_CERTIFICATE, _TLS_KEY), (_TLS_KEY, _TLS_CERTIFICATE)):
        if given in configs and lacking not in configs:
            raise _refused(lacking, f"{given} and {lacking} belong together; give both or none")
    return TlsClientSettings(
        ca_file=_path(configs, _TLS_CA),
        certificate_file=_path(configs, _TLS_CERTIFICATE),
        key_file=_path(configs, _TLS_KEY),
        server_name=configs.get(_TLS_NAME),
    )


def _path(configs: Mapping[str, str], key: str) -> Path | None:
    return Path(configs[key]) if key in configs else None


def _refused(key: str, message: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(message, metadata={"key": key})
