"""A span for each SQL statement.

Our own, because the OpenTelemetry instrumentation of SQLAlchemy refuses the releases of SQLAlchemy from 2.1 on and can
instrument only one engine of a process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
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


@contextmanager
def statement_span(connection: Connection, statement: str) -> Iterator[None]:
    """The span of a statement that does not pass through SQLAlchemy."""
    span = _started(connection, statement, batch_size=1)
    try:
        yield
    except Exception as error:
        _note_failure(span, error)
        raise
    finally:
        span.end()


def _begin(  # noqa: PLR0917 - the event's signature
    connection: Connection,
    cursor: Any,
    statement: str,
    parameters: Any,
    context: Any,
    executemany: bool,
) -> None:
    batch_size = len(parameters) if executemany else 1
    connection.info[_SPAN] = _started(connection, statement, batch_size)


def _started(connection: Connection, statement: str, batch_size: int) -> Span:
    operation = statement.split(None, 1)[0].upper() if statement.strip() else "SQL"
    url = connection.engine.url
    span = _TRACER.start_span(f"{operation} {url.database or ''}", kind=SpanKind.CLIENT)
    if span.is_recording():
        span.set_attributes(
            {
                "db.system.name": "postgresql",
                "db.namespace": url.database or "",
                "db.operation.name": operation,
                "db.operation.batch.size": batch_size,
                "db.query.text": statement[:_MAX_STATEMENT_CHARS],
                "server.address": url.host or "",
            }
        )
    return span


def _end(connection: Connection, *_: Any) -> None:
    span = connection.info.pop(_SPAN, None)
    if span is not None:
        span.end()


def _fail(context: ExceptionContext) -> None:
    span = context.connection.info.pop(_SPAN, None) if context.connection is not None else None
    if span is not None:
        _note_failure(span, context.original_exception)
        span.end()


def _note_failure(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", getattr(error, "sqlstate", None) or type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
