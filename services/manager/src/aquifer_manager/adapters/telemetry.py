"""Spans and metrics of the manager over the OpenTelemetry API."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from aquifer_manager.domain.partition_view import PartitionView
from aquifer_manager.domain.tasks import TaskState

__all__ = ["OtelTelemetry", "register_gauges"]

_TRACER: Final = trace.get_tracer("aquifer_manager")
_METER: Final = metrics.get_meter("aquifer_manager")

_COUNTERS: Final = {
    "copy.bytes": ("By", "Bytes of `.log` files copied."),
    "copy.requests": ("{copy}", "Copies begun."),
    "copy.errors": ("{run}", "Copy runs that failed."),
    "fetch.bytes": ("By", "Record bytes read from remote storage."),
    "fetch.requests": ("{fetch}", "Remote reads asked for, refused ones included."),
    "fetch.errors": (
        "{fetch}",
        "Remote reads that failed; offsets out of range and refusals do not count.",
    ),
    "delete.bytes": ("By", "Bytes of `.log` files deleted."),
    "delete.requests": ("{delete}", "Segment deletions tried."),
    "delete.errors": ("{delete}", "Segment deletions that failed."),
}


class OtelTelemetry:
    """Implements `Telemetry`; counters are named `aquifer.remote.<name>` and split by topic."""

    def __init__(self) -> None:
        self._counters = {
            name: _METER.create_counter(f"aquifer.remote.{name}", unit=unit, description=text)
            for name, (unit, text) in _COUNTERS.items()
        }

    @contextmanager
    def span(
        self, name: str, topic_id_partition: TopicIdPartition, attributes: Mapping[str, int | str]
    ) -> Iterator[None]:
        """See `Telemetry`."""
        named = {f"aquifer.{key}": value for key, value in attributes.items()}
        named |= {
            "aquifer.topic": topic_id_partition.topic,
            "aquifer.topic_id": str(topic_id_partition.topic_id),
            "aquifer.partition": topic_id_partition.partition,
        }
        with _TRACER.start_as_current_span(name, attributes=named) as span:
            try:
                yield
            except AquiferError as error:
                span.set_attribute("aquifer.error_reason", error.reason.value)
                raise

    def count(self, name: str, value: int, topic: str) -> None:
        """See `Telemetry`."""
        self._counters[name].add(value, {"aquifer.topic": topic})


def register_gauges(
    views: Callable[[], list[PartitionView]],
    tasks: Callable[[], list[TaskState]],
    readers: Callable[[], tuple[int, int]],
) -> None:
    """Gauges of lag by topic, of tasks by kind, and of the reader pool; once in a process.

    Args:
        views: state of all partitions.
        tasks: state of all tasks.
        readers: remote reads under way, and waiting.
    """
    _gauge(
        "aquifer.remote.copy.lag.bytes",
        "By",
        "Bytes of rolled segments that are not remote.",
        lambda: _by_topic(views(), lambda view: view.lag.size_bytes, sum),
    )
    _gauge(
        "aquifer.remote.copy.lag.segments",
        "{segment}",
        "Rolled segments that are not remote.",
        lambda: _by_topic(views(), lambda view: view.lag.segments, sum),
    )
    _gauge(
        "aquifer.remote.copy.lag.age",
        "ms",
        "Age of the oldest rolled segment that is not remote.",
        lambda: _by_topic(views(), lambda view: view.lag.age_ms, max),
    )
    _gauge(
        "aquifer.task.since_success",
        "ms",
        "Longest time that a task of the kind is without success.",
        lambda: _by_kind(tasks(), lambda task: task.without_success_ms, max),
    )
    _gauge(
        "aquifer.task.failing",
        "{task}",
        "Tasks whose last run failed.",
        lambda: _by_kind(tasks(), lambda task: int(task.consecutive_failures > 0), sum),
    )
    _gauge(
        "aquifer.remote.reader.active",
        "{fetch}",
        "Remote reads under way.",
        lambda: [Observation(readers()[0])],
    )
    _gauge(
        "aquifer.remote.reader.pending",
        "{fetch}",
        "Remote reads waiting for a reader.",
        lambda: [Observation(readers()[1])],
    )


def _gauge(name: str, unit: str, text: str, observe: Callable[[], list[Observation]]) -> None:
    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return observe()

    _METER.create_observable_gauge(name, callbacks=[callback], unit=unit, description=text)


def _by_topic(
    views: list[PartitionView],
    value: Callable[[PartitionView], int],
    combine: Callable[[list[int]], int],
) -> list[Observation]:
    found: dict[str, list[int]] = {}
    for view in views:
        found.setdefault(view.topic_id_partition.topic, []).append(value(view))
    return [
        Observation(combine(values), {"aquifer.topic": topic}) for topic, values in found.items()
    ]


def _by_kind(
    tasks: list[TaskState],
    value: Callable[[TaskState], int],
    combine: Callable[[list[int]], int],
) -> list[Observation]:
    found: dict[str, list[int]] = {}
    for task in tasks:
        found.setdefault(task.key.type.name.lower(), []).append(value(task))
    return [Observation(combine(values), {"aquifer.task": kind}) for kind, values in found.items()]
