"""A small OTLP receiver on loopback, to show and to check traces and counters without a telemetry back end."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_rpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

_MAX_TRACES = 20_000
_GRACE_S = 1.0

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A finished span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    kind: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    ok: bool

    @property
    def duration_ms(self) -> float:
        """Duration."""
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(slots=True)
class Trace:
    """The spans of one trace received so far."""

    spans: dict[str, Span] = field(default_factory=dict)

    def roots(self) -> list[Span]:
        """Spans whose parent was not received, earliest first."""
        found = [span for span in self.spans.values() if span.parent_id not in self.spans]
        return sorted(found, key=lambda span: span.start_ns)

    def children(self, parent: Span) -> list[Span]:
        """Direct children, earliest first."""
        found = [span for span in self.spans.values() if span.parent_id == parent.span_id]
        return sorted(found, key=lambda span: span.start_ns)

    def walk(self) -> Iterator[tuple[int, Span]]:
        """(depth, span) in tree order."""

        def below(span: Span, depth: int) -> Iterator[tuple[int, Span]]:
            yield depth, span
            for child in self.children(span):
                yield from below(child, depth + 1)

        for root in self.roots():
            yield from below(root, 0)

    def edges(self) -> set[tuple[str, str]]:
        """(service, service called) pairs: parent and child in different processes."""
        return {
            (self.spans[span.parent_id].service, span.service)
            for span in self.spans.values()
            if span.parent_id in self.spans and self.spans[span.parent_id].service != span.service
        }

    def services(self) -> set[str]:
        """Names of the services that took part."""
        return {span.service for span in self.spans.values()}


Attributes = frozenset[tuple[str, Value]]


class _Counters(metrics_rpc.MetricsServiceServicer):
    """Keeps the last value of every cumulative sum, by name, service instance and attributes."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, Attributes], float] = {}

    async def Export(  # noqa: N802 - the RPC's name
        self, request: metrics_pb.ExportMetricsServiceRequest, context: object
    ) -> metrics_pb.ExportMetricsServiceResponse:
        for resource in request.resource_metrics:
            instance = str(_attributes(resource.resource.attributes).get("service.instance.id", ""))
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points:
                        key = (
                            metric.name,
                            instance,
                            frozenset(_attributes(point.attributes).items()),
                        )
                        self.values[key] = point.as_int or point.as_double
        return metrics_pb.ExportMetricsServiceResponse()


class TraceCollector(rpc.TraceServiceServicer):
    """Receives spans and metrics over OTLP/gRPC and keeps the last traces and counters in memory.

    An async context manager; `endpoint` is known inside it.
    """

    def __init__(self, port: int = 0) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._counters = _Counters()
        self._wanted_port = port
        self._server: grpc.aio.Server | None = None
        self.endpoint = ""

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        rpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        metrics_rpc.add_MetricsServiceServicer_to_server(self._counters, self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port(f"127.0.0.1:{self._wanted_port}")
        await self._server.start()
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._server is not None:
            await self._server.stop(_GRACE_S)

    async def Export(  # noqa: N802 - the RPC's name
        self, request: pb.ExportTraceServiceRequest, context: object
    ) -> pb.ExportTraceServiceResponse:
        """Keeps the spans of one export."""
        for resource in request.resource_spans:
            service = str(_attributes(resource.resource.attributes).get("service.name", ""))
            for scope in resource.scope_spans:
                for message in scope.spans:
                    self._keep(_span(service, message))
        return pb.ExportTraceServiceResponse()

    def _keep(self, span: Span) -> None:
        trace = self._traces.setdefault(span.trace_id, Trace())
        trace.spans[span.span_id] = span
        while len(self._traces) > _MAX_TRACES:
            self._traces.popitem(last=False)

    def traces(self) -> list[Trace]:
        """Every trace kept, oldest first."""
        return list(self._traces.values())

    def counters(self, name: str) -> dict[Attributes, float]:
        """Values of a counter received so far by its attributes, over all processes."""
        found: dict[Attributes, float] = {}
        for (metric, _, attributes), value in self._counters.values.items():
            if metric == name:
                found[attributes] = found.get(attributes, 0) + value
        return found

    async def wait_for(self, wanted: Callable[[Trace], bool], timeout_s: float = 15.0) -> Trace:
        """The newest trace that `wanted` accepts, waiting for late spans.

        Raises:
            TimeoutError: none came in time.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                for trace in reversed(self._traces.values()):
                    if wanted(trace):
                        return trace
                await asyncio.sleep(0.1)


def _span(service: str, message: SpanMessage) -> Span:
    return Span(
        trace_id=message.trace_id.hex(),
        span_id=message.span_id.hex(),
        parent_id=message.parent_span_id.hex(),
        name=message.name,
        service=service,
        kind=SpanMessage.SpanKind.Name(message.kind).removeprefix("SPAN_KIND_"),
        start_ns=message.start_time_unix_nano,
        end_ns=message.end_time_unix_nano,
        attributes=_attributes(message.attributes),
        ok=message.status.code != 2,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    return (
        getattr(value, kind)
        if kind in ("string_value", "int_value", "double_value", "bool_value")
        else ""
    )
