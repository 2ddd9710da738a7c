"""Exporters of traces and metrics that connect to the collector anew when its TLS files have changed."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from aquifer_rpc.credentials import client_credentials
from aquifer_rpc.tls_files import TlsFiles

__all__ = ["metric_exporter", "span_exporter"]

# OpenTelemetry's own variables for these files.
_AUTHORITIES: Final = "OTEL_EXPORTER_OTLP_CERTIFICATE"
_CERTIFICATES: Final = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
_KEY: Final = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
_INTERVAL_S: Final = 5.0
# A message is refused by collectors above 4 MiB; a point of a histogram takes some 400 bytes.
_MAX_POINTS: Final = 4_000

E = TypeVar("E", bound=SpanExporter | MetricExporter)


def span_exporter(endpoint: str, *, timeout_s: float) -> SpanExporter:
    """Sends spans to a collector.

    Args:
        endpoint: `http://host:port`, or `https://host:port` for TLS.
        timeout_s: longest time for one export.

    Raises:
        InvalidConfigurationError: a TLS file cannot be read, or the files do not fit together.
    """

    def make(credentials: grpc.ChannelCredentials | None) -> SpanExporter:
        return OTLPSpanExporter(
            endpoint=endpoint,
            insecure=_is_plain(endpoint),
            credentials=credentials,
            timeout=timeout_s,
        )

    files = _files(endpoint)
    return make(None) if files is None else _Spans(_Renewed(make, files))


def metric_exporter(endpoint: str, *, timeout_s: float) -> MetricExporter:
    """Sends metrics to a collector; see `span_exporter`."""

    def make(credentials: grpc.ChannelCredentials | None) -> MetricExporter:
        return OTLPMetricExporter(
            endpoint=endpoint,
            insecure=_is_plain(endpoint),
            credentials=credentials,
            timeout=timeout_s,
            max_export_batch_size=_MAX_POINTS,
        )

    files = _files(endpoint)
    return make(None) if files is None else _Metrics(_Renewed(make, files))


def _is_plain(endpoint: str) -> bool:
    return endpoint.startswith("http://")


def _files(endpoint: str) -> TlsFiles | None:
    """None without TLS, or where gRPC's built-in authorities are good enough."""
    authorities, certificates, key = map(_path, (_AUTHORITIES, _CERTIFICATES, _KEY))
    if authorities is None or _is_plain(endpoint):
        return None
    return TlsFiles(
        authorities=authorities, certificates=certificates, key=key, interval_s=_INTERVAL_S
    )


def _path(variable: str) -> Path | None:
    given = os.environ.get(variable)
    return Path(given) if given else None


class _Renewed(Generic[E]):
    """The exporter for the newest files; used by one thread at a time."""

    def __init__(
        self, make: Callable[[grpc.ChannelCredentials | None], E], files: TlsFiles
    ) -> None:
        self._make = make
        self._files = files
        self._material = files.material
        self.newest: E = make(client_credentials(self._material))

    def looked(self) -> E:
        """The exporter after a look at the files."""
        material = self._files.current()
        if material is not self._material:
            former, self.newest = self.newest, self._make(client_credentials(material))
            self._material = material
            former.shutdown()
        return self.newest


class _Spans(SpanExporter):
    def __init__(self, renewed: _Renewed[SpanExporter]) -> None:
        self._renewed = renewed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._renewed.looked().export(spans)

    def shutdown(self) -> None:
        self._renewed.newest.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._renewed.newest.force_flush(timeout_millis)


class _Metrics(MetricExporter):
    def __init__(self, renewed: _Renewed[MetricExporter]) -> None:
        super().__init__()
        self._renewed = renewed

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        return self._renewed.looked().export(metrics_data, timeout_millis, **kwargs)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._renewed.newest.shutdown(timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._renewed.newest.force_flush(timeout_millis)
