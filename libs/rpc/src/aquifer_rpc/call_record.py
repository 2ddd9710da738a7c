"""What is remembered of one call made: span and metrics."""

import asyncio
import time
from types import TracebackType
from typing import Final, Self

from aquifer_core.errors import AquiferError
from grpc import StatusCode
from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind

from aquifer_rpc import semconv
from aquifer_rpc.errors import code_of
from aquifer_rpc.request_context import outgoing_metadata

_TRACER: Final = trace.get_tracer("aquifer_rpc")
_METER: Final = metrics.get_meter("aquifer_rpc")
_DURATION: Final = _METER.create_histogram(
    semconv.CLIENT_DURATION.name,
    unit=semconv.CLIENT_DURATION.unit,
    description=semconv.CLIENT_DURATION.doc,
)
_RETRIES: Final = _METER.create_counter(
    semconv.CLIENT_RETRIES.name,
    unit=semconv.CLIENT_RETRIES.unit,
    description=semconv.CLIENT_RETRIES.doc,
)


class CallRecord:
    """One call, all its attempts together; a context manager around it.

    The span is not made current: an async generator would leak it into its consumer.
    """

    def __init__(self, method: str) -> None:
        service, _, name = method.strip("/").partition("/")
        self._method = method
        self._span = _TRACER.start_span(
            f"{service}/{name}",
            kind=SpanKind.CLIENT,
            attributes={
                semconv.RPC_SYSTEM.key: "grpc",
                semconv.RPC_SERVICE.key: service,
                semconv.RPC_METHOD.key: name,
            },
        )
        self.metadata: Final = tuple(outgoing_metadata(self._span))
        self._started_s = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        code = _code(exc)
        _DURATION.record(
            time.perf_counter() - self._started_s,
            {semconv.RPC_METHOD.key: self._method, semconv.RPC_CODE_NAME.key: code.name},
        )
        if self._span.is_recording():
            self._span.set_attribute(semconv.RPC_CODE.key, code.value[0])
            if isinstance(exc, AquiferError):
                self._span.set_attribute(semconv.ERROR_REASON.key, exc.reason.value)
            if code not in (StatusCode.OK, StatusCode.CANCELLED):
                self._span.set_status(trace.StatusCode.ERROR, code.name)
        self._span.end()

    def attempting(self, target: str) -> None:
        """Notes the address that is asked now."""
        self._span.set_attribute(semconv.ENDPOINT.key, target)

    def retrying(self, error: AquiferError, attempt: int, pause_s: float) -> None:
        """Notes that an attempt failed and another one follows."""
        _RETRIES.add(
            1,
            {semconv.RPC_METHOD.key: self._method, semconv.ERROR_REASON.key: error.reason.value},
        )
        self._span.add_event(
            "retry",
            {
                semconv.ATTEMPT.key: attempt,
                semconv.ERROR_REASON.key: error.reason.value,
                "aquifer.pause_s": pause_s,
            },
        )


def _code(exc: BaseException | None) -> StatusCode:
    if exc is None:
        return StatusCode.OK
    if isinstance(exc, asyncio.CancelledError | GeneratorExit):
        return StatusCode.CANCELLED
    return code_of(exc)
