"""Page of spans, metrics and attributes, from `aquifer_rpc.semconv` and what services add under names of OpenTelemetry's."""

from typing import Any

from aquifer_metadata.adapters.postgres import pool_semconv
from aquifer_rpc import semconv
from aquifer_rpc.semconv import Attribute, InstrumentKind, Metric, Span

from generators.page import MARK, table

_SOURCES = (semconv, pool_semconv)
_UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}

_INTRODUCTION = """# Telemetry

Every process sends traces and metrics over OTLP when its `telemetry.otlp_endpoint` (broker: `aquifer.telemetry.endpoint`) is set.
The Prometheus names are those that the OpenTelemetry collector gives; histograms have `_bucket`, `_sum` and `_count` below them.
"""


def telemetry_page() -> str:
    """Everything that is declared."""
    spans, metrics, attributes = declared(Span), declared(Metric), declared(Attribute)
    return (
        MARK
        + _INTRODUCTION
        + "\n## Spans\n\n"
        + table(("span", "meaning", "attributes"), map(_span_row, spans))
        + "\n## Metrics\n\n"
        + table(
            ("metric", "in Prometheus", "kind", "unit", "meaning", "split by"),
            map(_metric_row, metrics),
        )
        + "\n## Attributes\n\n"
        + table(("attribute", "meaning"), ((f"`{each.key}`", each.doc) for each in attributes))
    )


def declared(kind: type) -> list[Any]:
    """Module-level declarations of a kind, in their order, aliases once."""
    values = [value for source in _SOURCES for value in vars(source).values()]
    found = {id(value): value for value in values if isinstance(value, kind)}
    return list(found.values())


def prometheus_name(metric: Metric) -> str:
    """The name after the collector's Prometheus exporter has added unit and type."""
    tokens = [token for token in metric.name.replace(".", "_").split("_") if token]
    word = _UNIT_WORDS.get(metric.unit, "")
    if word and word not in tokens:
        tokens.append(word)
    if metric.kind is InstrumentKind.COUNTER:
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if metric.unit == "1" and metric.kind is InstrumentKind.GAUGE:
        tokens.append("ratio")
    return "_".join(tokens)


def _span_row(span: Span) -> tuple[str, ...]:
    return (f"`{span.name}`", span.doc, _keys(span.attributes))


def _metric_row(metric: Metric) -> tuple[str, ...]:
    return (
        f"`{metric.name}`",
        f"`{prometheus_name(metric)}`",
        metric.kind.value,
        f"`{metric.unit}`",
        metric.doc,
        _keys(metric.attributes),
    )


def _keys(attributes: tuple[Attribute, ...]) -> str:
    return ", ".join(f"`{each.key}`" for each in attributes)
