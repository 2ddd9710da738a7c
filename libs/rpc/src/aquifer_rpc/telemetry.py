"""Sets OpenTelemetry up; beside the exporters the only importer of its SDK.

Code that makes spans or metrics imports `opentelemetry.trace` and `opentelemetry.metrics` (the API), which does nothing at
next to no cost until `telemetry` has installed providers.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

import structlog
from aquifer_core.errors import InvalidConfigurationError
from opentelemetry import metrics, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aquifer_rpc.otlp_exporters import metric_exporter, span_exporter
from aquifer_rpc.settings import TelemetrySettings

logger = structlog.get_logger(__name__)

_MAX_BATCH_SPANS = 512
_SPAN_DELAY_MS = 1000


@contextmanager
def telemetry(settings: TelemetrySettings, service_name: str) -> Iterator[None]:
    """Exports traces and metrics while the context is open; does nothing without an endpoint.

    Providers of OpenTelemetry are global and can be set once in a process, so this is entered once, outside of everything
    else. On the way out what is queued is sent, traces and then metrics, in at most `export_timeout_s` each.

    Raises:
        InvalidConfigurationError: the endpoint is no address, or a TLS file for it cannot be read.
    """
    propagate.set_global_textmap(TraceContextTextMapPropagator())
    if settings.otlp_endpoint is None:
        yield
        return
    _check_endpoint(settings.otlp_endpoint)
    resource = _resource(settings, service_name)
    traces = _tracer_provider(settings, settings.otlp_endpoint, resource)
    meters = _meter_provider(settings, settings.otlp_endpoint, resource)
    trace.set_tracer_provider(traces)
    metrics.set_meter_provider(meters)
    try:
        yield
    finally:
        _bounded(traces.shutdown, settings.export_timeout_s, "traces")
        _bounded(
            lambda: meters.shutdown(timeout_millis=settings.export_timeout_s * 1000),
            settings.export_timeout_s,
            "metrics",
        )


def _check_endpoint(endpoint: str) -> None:
    """OpenTelemetry would take what is no address for something else, and nothing would arrive anywhere."""
    try:
        parts = urlsplit(endpoint)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        whole = False
    if not whole:
        raise InvalidConfigurationError(
            f"{endpoint!r} is no address of a collector; give http://host:port, or https://host:port for TLS",
            metadata={"key": "telemetry.otlp_endpoint"},
        )


def _resource(settings: TelemetrySettings, service_name: str) -> Resource:
    return Resource.create(
        {
            "service.name": service_name,
            "service.namespace": "aquifer",
            "service.version": _version(service_name),
            "service.instance.id": settings.instance_id or f"{socket.gethostname()}-{os.getpid()}",
        }
    )


def _version(service_name: str) -> str:
    try:
        return version(service_name)
    except PackageNotFoundError:
        return "unknown"


def _tracer_provider(
    settings: TelemetrySettings, endpoint: str, resource: Resource
) -> TracerProvider:
    provider = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        shutdown_on_exit=False,
    )
    exporter = span_exporter(endpoint, timeout_s=settings.export_timeout_s)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=settings.max_queue_spans,
            schedule_delay_millis=_SPAN_DELAY_MS,
            max_export_batch_size=min(_MAX_BATCH_SPANS, settings.max_queue_spans),
            export_timeout_millis=settings.export_timeout_s * 1000,
        )
    )
    return provider


def _meter_provider(
    settings: TelemetrySettings, endpoint: str, resource: Resource
) -> MeterProvider:
    exporter = metric_exporter(endpoint, timeout_s=settings.export_timeout_s)
    reader = PeriodicExportingMetricReader(
        exporter,
        export_interval_millis=settings.metrics_interval_s * 1000,
        export_timeout_millis=settings.export_timeout_s * 1000,
    )
    return MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)


def _bounded(action: Callable[[], None], timeout_s: float, what: str) -> None:
    """The SDK's own shutdown may wait for half a minute when the collector is gone."""
    thread = threading.Thread(target=action, name=f"telemetry-{what}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        logger.warning("telemetry_not_flushed", what=what, timeout_s=timeout_s)
