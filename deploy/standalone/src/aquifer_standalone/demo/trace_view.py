"""One trace as a tree across processes."""

from rich.tree import Tree

from aquifer_standalone.trace_collector import Span, Trace, TraceCollector

_SHOWN_ATTRIBUTES = ("aquifer.topic", "aquifer.partition", "aquifer.fetch_offset", "aquifer.bytes")
_MAX_STATEMENT = 60


async def cold_fetch_trace(collector: TraceCollector) -> Trace:
    """A cold fetch that went all the way: through metadata to SQL and through storage to the object store.

    Raises:
        TimeoutError: none was received in time.
    """
    return await collector.wait_for(_is_whole_cold_fetch)


async def plugin_fetch_trace(collector: TraceCollector) -> Trace:
    """A read of a segment by the plugin in a broker of Apache Kafka, through storage to the object store.

    Raises:
        TimeoutError: none was received in time.
    """
    return await collector.wait_for(_is_plugin_fetch)


def _is_plugin_fetch(trace: Trace) -> bool:
    roots = trace.roots()
    if len(roots) != 1 or "kafka" not in roots[0].service or "etch" not in roots[0].name:
        return False
    return any(span.name.startswith("s3.") for span in trace.spans.values())


def _is_whole_cold_fetch(trace: Trace) -> bool:
    roots = trace.roots()
    if len(roots) != 1 or roots[0].service != "aquifer-broker":
        return False
    names = {span.name for span in trace.spans.values()}
    has_sql = any("db.system" in key for s in trace.spans.values() for key in s.attributes)
    return has_sql and any(name.startswith("s3.") for name in names)


def trace_tree(trace: Trace) -> Tree:
    """The spans of a trace with their services and durations, indented as they called each other."""
    top = Tree("[bold]one cold fetch, as its trace tells it")
    nodes: dict[int, Tree] = {-1: top}
    for depth, span in trace.walk():
        nodes[depth] = nodes[depth - 1].add(_label(span))
    return top


def _label(span: Span) -> str:
    shown = " ".join(
        f"{key.rpartition('.')[2]}={span.attributes[key]}"
        for key in _SHOWN_ATTRIBUTES
        if key in span.attributes
    )
    statement = str(span.attributes.get("db.statement", ""))
    statement = " ".join(statement.split())[:_MAX_STATEMENT]
    details = " ".join(part for part in (shown, statement) if part)
    mark = "" if span.ok else " [red]failed[/]"
    return f"[cyan]{span.service}[/] {span.name}{mark} [dim]{span.duration_ms:.1f} ms {details}[/]"
