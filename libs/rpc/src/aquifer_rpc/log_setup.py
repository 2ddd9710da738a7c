"""Sets structlog and the standard library's logging up: events with fields, to standard error."""

import asyncio
import logging
import sys
from typing import Any, Final, TextIO, cast

import structlog
from opentelemetry import trace

from aquifer_rpc.log_stream import LogStream
from aquifer_rpc.settings import LogFormat, LogSettings

logger = structlog.get_logger(__name__)

# These say at INFO what our own log lines say already, or what only their developers want to know.
_NOISY: Final = ("grpc", "opentelemetry", "urllib3", "sqlalchemy", "alembic", "asyncio")
_GRPC_CORE: Final = "grpc._cython.cygrpc"


def configure_logging(settings: LogSettings, service_name: str = "") -> None:
    """Configures logging of the process; once, before anything is logged. Lines of libraries take the same form."""
    level = getattr(logging, settings.level.value.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_trace_context,
    ]
    if service_name:
        shared.append(_adder_of("service", service_name))
    # Our own lines do not pass through the standard library, which costs more than all the rest of a log line.
    processors = [*shared, *_renderers(settings.format)]
    stream = LogStream(sys.stderr or sys.stdout, lambda lines: _lines_lost(processors, lines))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, stream)),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *_renderers(settings.format),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.getLogger(_GRPC_CORE).addFilter(_is_news)


def add_trace_context(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A structlog processor: trace and span id of the current span."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(context.trace_id))
        event.setdefault("span_id", trace.format_span_id(context.span_id))
    return event


def _is_news(record: logging.LogRecord) -> bool:
    """False for an answer that reached nobody because the client had died: no error here, and the RPC has its own line."""
    return not str(record.msg).startswith("ExecuteBatchError raised in core")


def log_unhandled(loop: asyncio.AbstractEventLoop) -> None:
    """Logs what the loop finds unhandled (tasks never awaited, broken callbacks) as events."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logger.error(
            "unhandled_in_event_loop",
            message=context.get("message"),
            exc_info=context.get("exception"),
        )

    loop.set_exception_handler(handle)


def _renderers(log_format: LogFormat) -> list[structlog.typing.Processor]:
    if log_format is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    colors = sys.stderr.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _lines_lost(processors: list[structlog.typing.Processor], lines: int) -> str:
    event: Any = {"event": "log_lines_lost", "lines": lines}
    for processor in processors:
        event = processor(None, "warning", event)
    return str(event)


def _adder_of(key: str, value: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: structlog.typing.EventDict) -> Any:
        event.setdefault(key, value)
        return event

    return add
