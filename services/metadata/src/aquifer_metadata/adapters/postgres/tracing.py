"""A span for each SQL statement.

Our own, because the OpenTelemetry instrumentation of SQLAlchemy refuses the releases of SQLAlchemy from 2.1 on and can
instrument only one engine of a process.
"""

from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, ExceptionContext

_TRACER: Final = trace.get_tracer("aquifer_metadata")
_SPAN: Final = "aquifer_span"
_MAX_STATEMENT_CHARS: Final = 2000


def trace_statements(engine: Engine) -> None:
    """Makes every statement of an engine a span under whatever span is current; parameters are left out."""
    event.listen(engine, "before_cursor_execute", _begin)
    event.listen(engine, "after_cursor_execute", _end)
    event.listen(engine, "handle_error", _fail)


def _begin(  # noqa: PLR0917 - the event's signature
    connection: Connection,
    cursor: Any,
    statement: str,
    parameters: Any,
    context: Any,
    executemany: bool,
) -> None:
    operation = statement.split(None, 1)[0].upper() if statement.strip() else "SQL"
    database = connection.engine.url.database or ""
    span = _TRACER.start_span(f"{operation} {database}", kind=SpanKind.CLIENT)
    if span.is_recording():
        span.set_attributes(
            {
                "db.system.name": "postgresql",
                "db.namespace": database,
                "db.operation.name": operation,
                "db.operation.batch.size": len(parameters) if executemany else 1,
                "db.query.text": statement[:_MAX_STATEMENT_CHARS],
                "server.address": connection.engine.url.host or "",
            }
        )
    connection.info[_SPAN] = span


def _end(connection: Connection, *_: Any) -> None:
    span = connection.info.pop(_SPAN, None)
    if span is not None:
        span.end()


def _fail(context: ExceptionContext) -> None:
    span = context.connection.info.pop(_SPAN, None) if context.connection is not None else None
    if span is not None:
        state = getattr(context.original_exception, "sqlstate", None)
        span.set_attribute("error.type", state or type(context.original_exception).__name__)
        span.set_status(Status(StatusCode.ERROR, str(context.original_exception)))
        span.end()
