"""Settings shared by every process that speaks gRPC.

A process has one settings class derived from `ServiceSettings` with its own prefix; variables are named
`<PREFIX><FIELD>` and `<PREFIX><GROUP>__<FIELD>`, for example `AQUIFER_STORAGE_GRPC__LISTEN`.
"""

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict

from aquifer_rpc.environment import NESTED_DELIMITER, load_settings

__all__ = [
    "Group",
    "GrpcClientSettings",
    "GrpcServerSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "ServiceSettings",
    "TelemetrySettings",
    "TlsClientSettings",
    "TlsServerSettings",
    "load_settings",
]

MEBIBYTE = 1024 * 1024


class Group(BaseModel):
    """Base of nested groups: frozen, closed, documented field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TlsServerSettings(Group):
    """TLS of a server; with `client_ca_file` clients must show a certificate as well (mTLS)."""

    certificate_file: Path
    """PEM chain of the server."""
    key_file: Path
    """PEM private key of the server."""
    client_ca_file: Path | None = None
    """PEM authorities that client certificates must come from; unset: clients are not asked for one."""
    reload_interval_s: PositiveFloat = 5.0
    """How often the files are looked at; those that changed are read again."""


class TlsClientSettings(Group):
    """TLS of a client."""

    ca_file: Path | None = None
    """PEM authorities to trust; unset: gRPC's built-in ones."""
    certificate_file: Path | None = None
    """PEM chain of the client for mTLS."""
    key_file: Path | None = None
    """PEM private key of the client for mTLS."""
    server_name: str | None = None
    """Name to expect in the server's certificate when it is not the host of the address."""
    reload_interval_s: PositiveFloat = 5.0
    """Calls look at the files when nobody has for so long; those that changed are read again."""


class GrpcServerSettings(Group):
    """How a server listens and behaves."""

    listen: str = "127.0.0.1:0"
    """Address as host:port; port 0 takes a free one."""
    tls: TlsServerSettings | None = None
    """Unset: plaintext."""
    max_message_bytes: PositiveInt = 4 * MEBIBYTE
    """Largest message received or sent."""
    stream_window_bytes: PositiveInt = 4 * MEBIBYTE
    """Bytes that one stream may have under way before its reader takes them; more only helps over long distances."""
    max_rpc_s: PositiveFloat = 60.0
    """Deadline of RPCs whose caller gave none; declared watch streams have none."""
    deadline_reserve_s: float = Field(default=0.05, ge=0)
    """Kept of the caller's deadline (at most 5 % of it), so that the server still answers what it waited for."""
    min_remaining_s: float = Field(default=0.002, ge=0)
    """With less than this left an RPC is refused before it starts."""
    keepalive_time_s: PositiveFloat = 20.0
    """Idle time after which a connection is probed."""
    keepalive_timeout_s: PositiveFloat = 10.0
    """A probe not answered in this time ends the connection."""
    min_ping_interval_s: PositiveFloat = 5.0
    """Clients that probe more often are cut off."""
    max_connection_s: PositiveFloat | None = None
    """Older connections take no further RPCs (a tenth more or less), so that clients connect, and show their certificates, again; unset: no limit."""
    max_concurrent_rpcs: PositiveInt | None = None
    """More than these are refused with RESOURCE_EXHAUSTED; unset: no limit."""
    reuse_port: bool = False
    """Lets several processes listen on one port."""
    reflection: bool = True
    """Offers the reflection service, for grpcurl and the like."""
    probe_interval_s: PositiveFloat = 1.0
    """How often readiness is asked of the dependencies."""
    probe_deadline_s: PositiveFloat = 2.0
    """A probe not answered in this time counts as failed."""
    drain_delay_s: float = Field(default=0.0, ge=0)
    """Time between NOT_SERVING and refusing new RPCs, for load balancers to notice."""
    drain_grace_s: float = Field(default=10.0, ge=0)
    """RPCs still running this long after draining began are cancelled."""


class GrpcClientSettings(Group):
    """How a client calls."""

    tls: TlsClientSettings | None = None
    """Unset: plaintext."""
    max_message_bytes: PositiveInt = 4 * MEBIBYTE
    """Largest message received or sent."""
    stream_window_bytes: PositiveInt = 4 * MEBIBYTE
    """Bytes that one stream may have under way before its reader takes them; more only helps over long distances."""
    deadline_s: PositiveFloat = 30.0
    """Deadline of calls that do not give one; a whole call, retries included."""
    keepalive_time_s: PositiveFloat = 20.0
    """Idle time after which a connection is probed; not below the server's `min_ping_interval_s`."""
    keepalive_timeout_s: PositiveFloat = 10.0
    """A probe not answered in this time ends the connection."""
    connect_timeout_s: PositiveFloat = 2.0
    """Longest time to establish a connection; then the address counts as unavailable."""
    reconnect_backoff_min_s: PositiveFloat = 0.1
    """First pause before connecting again."""
    reconnect_backoff_max_s: PositiveFloat = 1.0
    """Longest pause before connecting again; a service that comes back is not noticed earlier."""
    max_attempts: PositiveInt = 5
    """Attempts of one call, the first included; 1 turns retries off."""
    retry_backoff_min_s: PositiveFloat = 0.05
    """Pause before the first retry; doubles, with jitter."""
    retry_backoff_max_s: PositiveFloat = 2.0
    """Longest pause between retries, unless the server asks for more."""
    down_s: PositiveFloat = 1.0
    """With several endpoints: how long one that did not answer is asked last."""
    round_robin: bool = False
    """Spreads calls over all addresses that a DNS name has, instead of staying with the first that answers."""
    private_connection: bool = False
    """Own connection instead of one shared with other channels of this process to the same address."""


class TelemetrySettings(Group):
    """Traces and metrics over OTLP."""

    otlp_endpoint: str | None = None
    """Collector as http://host:port (gRPC), or https://host:port for TLS; unset: nothing is exported."""
    sample_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of traces begun here that are recorded; traces begun elsewhere follow their parent."""
    metrics_interval_s: PositiveFloat = 15.0
    """How often metrics are sent."""
    max_queue_spans: PositiveInt = 4096
    """Spans waiting to be sent; further ones are dropped."""
    export_timeout_s: PositiveFloat = 5.0
    """Longest time for one export, and for the last one on shutdown."""
    instance_id: str | None = None
    """`service.instance.id`; unset: host name and process id."""


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """Lowest level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(Group):
    """Logging to standard error."""

    format: LogFormat = LogFormat.CONSOLE
    """Readable lines, or one JSON object a line."""
    level: LogLevel = LogLevel.INFO
    """Lowest level that is written."""


class ServiceSettings(BaseSettings):
    """What every service has; services derive theirs with `SettingsConfigDict(env_prefix=...)` left to the loader."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_nested_delimiter=NESTED_DELIMITER,
        # A variable of a group changes that field only; the group's other defaults stay what the service chose.
        nested_model_default_partial_update=True,
        use_attribute_docstrings=True,
    )

    grpc: GrpcServerSettings = GrpcServerSettings()
    """How the service listens."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Traces and metrics."""
    log: LogSettings = LogSettings()
    """Logging."""
