"""Records requests to an object store: span, counters, log."""

import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

import structlog
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    RemoteResourceNotFoundError,
    UnavailableError,
)
from aquifer_rpc import semconv
from opentelemetry import metrics, trace

logger = structlog.get_logger(__name__)

_TRACER: Final = trace.get_tracer("aquifer_storage")
_METER: Final = metrics.get_meter("aquifer_storage")


def _counter(metric: semconv.Metric) -> metrics.Counter:
    return _METER.create_counter(metric.name, unit=metric.unit, description=metric.doc)


_REQUESTS: Final = _counter(semconv.OBJECT_STORE_REQUESTS)
_BYTES: Final = _counter(semconv.OBJECT_STORE_BYTES)
_DURATION: Final = _METER.create_histogram(
    semconv.OBJECT_STORE_DURATION.name,
    unit=semconv.OBJECT_STORE_DURATION.unit,
    description=semconv.OBJECT_STORE_DURATION.doc,
)


class RequestTotals:
    """What one object store has been asked since it was opened.

    Attributes:
        requests: number of requests by operation, retries included.
        sent_bytes, received_bytes: bytes of objects.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self.requests: Counter[str] = Counter()
        self.sent_bytes = 0
        self.received_bytes = 0

    def record(self, operation: str, key: str, *, attempt: int = 1) -> "RequestRecord":
        """Return the context of one request."""
        return RequestRecord(self, operation, key, attempt)


class RequestRecord:
    """One request: use it as a context manager around the request. Its span is a child of the current one."""

    def __init__(self, totals: RequestTotals, operation: str, key: str, attempt: int) -> None:
        self._totals = totals
        self._operation = operation
        self._key = key
        self._attempt = attempt
        self._bytes = 0
        self._start_s = 0.0
        self._span = _TRACER.start_span(
            f"{totals.store}.{operation}",
            kind=trace.SpanKind.CLIENT,
            attributes={semconv.OBJECT_KEY.key: key, semconv.ATTEMPT.key: attempt},
        )

    def sent(self, size_bytes: int) -> None:
        """Count bytes of an object that were sent."""
        if not size_bytes:
            return
        self._bytes += size_bytes
        self._totals.sent_bytes += size_bytes
        _BYTES.add(size_bytes, self._attributes(semconv.DIRECTION, "sent"))

    def received(self, size_bytes: int) -> None:
        """Count bytes of an object that were received."""
        if not size_bytes:
            return
        self._bytes += size_bytes
        self._totals.received_bytes += size_bytes
        _BYTES.add(size_bytes, self._attributes(semconv.DIRECTION, "received"))

    def __enter__(self) -> Self:
        self._start_s = time.perf_counter()
        self._totals.requests[self._operation] += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        outcome = _outcome(error)
        operation = self._attributes(semconv.OPERATION, self._operation)
        _REQUESTS.add(1, {**operation, semconv.OUTCOME.key: outcome})
        _DURATION.record(time.perf_counter() - self._start_s, operation)
        self._span.set_attributes({semconv.BYTES.key: self._bytes, semconv.OUTCOME.key: outcome})
        if outcome in ("unavailable", "failed"):
            self._span.set_status(trace.StatusCode.ERROR, repr(error))
            logger.warning(
                "object_store_request_failed",
                store=self._totals.store,
                operation=self._operation,
                key=self._key,
                attempt=self._attempt,
                error=repr(error),
            )
        self._span.end()

    def _attributes(self, attribute: semconv.Attribute, value: str) -> dict[str, str]:
        return {semconv.OBJECT_STORE.key: self._totals.store, attribute.key: value}


def _outcome(error: BaseException | None) -> str:
    match error:
        case None:
            return "ok"
        case RemoteResourceNotFoundError():
            return "not_found"
        case UnavailableError():
            return "unavailable"
        case ConcurrentUpdateError():
            return "refused"
        case AquiferError() | Exception():
            return "failed"
        case _:
            return "cancelled"
