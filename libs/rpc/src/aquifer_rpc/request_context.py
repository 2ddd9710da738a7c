"""What travels along with a request inside a process: its id, and the caller's trace."""

import os
import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

REQUEST_ID_KEY: Final = "x-request-id"
REQUEST_ID: Final[ContextVar[str]] = ContextVar("aquifer_request_id", default="")

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_LEGAL_ID = re.compile(r"[!-~]{1,128}")


def new_request_id() -> str:
    """A random id of 32 hex digits."""
    return os.urandom(16).hex()


def incoming_request_id(metadata: Mapping[str, str]) -> str:
    """The caller's request id; a new one when it is missing or not printable ASCII of at most 128 characters."""
    given = metadata.get(REQUEST_ID_KEY, "")
    return given if _LEGAL_ID.fullmatch(given) else new_request_id()


def text_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """The text pairs of call metadata; keys are lower case already."""
    return {key: value for key, value in metadata or () if isinstance(value, str)}


def incoming_trace(metadata: Mapping[str, str]) -> Context:
    """The W3C trace context of the caller, empty when there is none."""
    return _PROPAGATOR.extract(metadata, context=Context())


def outgoing_metadata(span: trace.Span) -> list[tuple[str, str]]:
    """Metadata for a call: the trace context of its span and the current (or a new) request id."""
    carrier: dict[str, str] = {REQUEST_ID_KEY: REQUEST_ID.get() or new_request_id()}
    _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span))
    return list(carrier.items())


def current_trace_id() -> str:
    """Hex trace id of the current span, empty when there is none."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""
