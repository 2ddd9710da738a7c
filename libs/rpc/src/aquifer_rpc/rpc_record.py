"""What is remembered of one RPC served: span, metrics, log line and answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import grpc
import grpc.aio
import structlog
from aquifer_core.errors import AquiferError, ErrorReason
from grpc import StatusCode
from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind

from aquifer_rpc import semconv
from aquifer_rpc.errors import STATUS_DETAILS_KEY, to_status
from aquifer_rpc.request_context import (
    REQUEST_ID,
    REQUEST_ID_KEY,
    current_trace_id,
    incoming_request_id,
    incoming_trace,
    text_metadata,
)

logger = structlog.get_logger(__name__)

_TRACER: Final = trace.get_tracer("aquifer_rpc")
_METER: Final = metrics.get_meter("aquifer_rpc")
_DURATION: Final = _METER.create_histogram(
    semconv.SERVER_DURATION.name,
    unit=semconv.SERVER_DURATION.unit,
    description=semconv.SERVER_DURATION.doc,
)
_IN_FLIGHT: Final = _METER.create_up_down_counter(
    semconv.SERVER_IN_FLIGHT.name,
    unit=semconv.SERVER_IN_FLIGHT.unit,
    description=semconv.SERVER_IN_FLIGHT.doc,
)

_QUIET_PREFIXES: Final = ("/grpc.health.", "/grpc.reflection.")
_LEVELS: Final = {
    StatusCode.INTERNAL: logging.ERROR,
    StatusCode.UNKNOWN: logging.ERROR,
    StatusCode.DATA_LOSS: logging.ERROR,
    StatusCode.UNAVAILABLE: logging.WARNING,
    StatusCode.DEADLINE_EXCEEDED: logging.WARNING,
    StatusCode.RESOURCE_EXHAUSTED: logging.WARNING,
}
_SERVER_FAULTS: Final = frozenset(_LEVELS) - {StatusCode.RESOURCE_EXHAUSTED}


class _Names(NamedTuple):
    """What is the same for every RPC of a method."""

    span: str
    attributes: Mapping[str, str]
    dimension: Mapping[str, str]
    quiet: bool


@cache
def _names(method: str) -> _Names:
    """Methods are as many as handlers: callers cannot make up more."""
    service, _, name = method.strip("/").partition("/")
    return _Names(
        span=f"{service}/{name}",
        attributes={
            semconv.RPC_SYSTEM.key: "grpc",
            semconv.RPC_SERVICE.key: service,
            semconv.RPC_METHOD.key: name,
        },
        dimension={semconv.RPC_METHOD.key: method},
        quiet=method.startswith(_QUIET_PREFIXES),
    )


class RpcRecord:
    """One RPC from its start to its outcome; a context manager around the handler."""

    def __init__(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        metadata = text_metadata(context.invocation_metadata())
        self._method = method
        self._names = _names(method)
        self._peer = context.peer()
        self._code = StatusCode.OK
        self._reason: ErrorReason | None = None
        self._error: BaseException | None = None
        self.request_id = incoming_request_id(metadata)
        context.set_trailing_metadata(((REQUEST_ID_KEY, self.request_id),))
        REQUEST_ID.set(self.request_id)
        structlog.contextvars.bind_contextvars(request_id=self.request_id)
        self._span = _TRACER.start_span(
            self._names.span,
            context=incoming_trace(metadata),
            kind=SpanKind.SERVER,
            attributes={
                **self._names.attributes,
                semconv.REQUEST_ID.key: self.request_id,
                semconv.PEER_ADDRESS.key: self._peer,
            },
        )
        self._token = otel_context.attach(trace.set_span_in_context(self._span))
        self._started_s = time.perf_counter()

    def __enter__(self) -> Self:
        _IN_FLIGHT.add(1, self._names.dimension)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        duration_s = time.perf_counter() - self._started_s
        _IN_FLIGHT.add(-1, self._names.dimension)
        _DURATION.record(
            duration_s,
            {semconv.RPC_METHOD.key: self._method, semconv.RPC_CODE_NAME.key: self._code.name},
        )
        self._log(duration_s)
        self._end_span()
        otel_context.detach(self._token)

    async def fail(self, error: BaseException, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Answers with the status of an error.

        Raises:
            grpc.aio.AbortError: always, once the status is sent.
            asyncio.CancelledError: no status can be sent, since a message still waits for a consumer that does not read; gRPC
                then resets the RPC.
        """
        status = to_status(error, self.request_id)
        self._error = error
        self._code = _code(status.code)
        self._reason = error.reason if isinstance(error, AquiferError) else ErrorReason.INTERNAL
        details = status.SerializeToString()
        trailers = ((REQUEST_ID_KEY, self.request_id), (STATUS_DETAILS_KEY, details))
        try:
            await context.abort(self._code, status.message, trailers)
        except grpc.aio.InternalError as failure:
            raise asyncio.CancelledError(str(failure)) from error

    def aborted(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Notes that the handler answered with a bare status itself (health, reflection)."""
        self._code = _code(context.code())

    def cancelled(self) -> None:
        """Notes that the caller went away or the server stopped."""
        self._code = StatusCode.CANCELLED

    def _log(self, duration_s: float) -> None:
        level = _LEVELS.get(self._code, logging.INFO)
        if self._code is StatusCode.OK and self._names.quiet:
            level = logging.DEBUG
        fields: dict[str, Any] = {
            "method": self._method,
            "code": self._code.name,
            "duration_ms": round(duration_s * 1000, 3),
            "peer": self._peer,
            "request_id": self.request_id,
            "trace_id": current_trace_id(),
        }
        if self._reason is not None:
            fields["reason"] = self._reason.value
            fields["error"] = str(self._error)
        if self._error is not None and not isinstance(self._error, AquiferError):
            fields["exc_info"] = self._error
        logger.log(level, "rpc_served", **fields)

    def _end_span(self) -> None:
        if self._span.is_recording():
            self._span.set_attribute(semconv.RPC_CODE.key, self._code.value[0])
            if self._reason is not None:
                self._span.set_attribute(semconv.ERROR_REASON.key, self._reason.value)
            if self._code in _SERVER_FAULTS:
                self._span.set_status(trace.StatusCode.ERROR, self._code.name)
            if self._error is not None and not isinstance(self._error, AquiferError):
                self._span.record_exception(self._error)
        self._span.end()


def _code(code: StatusCode | int) -> StatusCode:
    if isinstance(code, StatusCode):
        return code
    return next((known for known in StatusCode if known.value[0] == code), StatusCode.UNKNOWN)
