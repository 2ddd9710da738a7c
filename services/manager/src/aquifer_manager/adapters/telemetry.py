"""Spans and metrics of the manager over the OpenTelemetry API; names are declared in `aquifer_rpc.semconv`."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc import semconv
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from aquifer_manager.domain.partition_view import CopyLag
from aquifer_manager.domain.tasks import TaskState

__all__ = ["GaugeSource", "OtelTelemetry", "observe"]

_TRACER: Final = trace.get_tracer("aquifer_manager")
_METER: Final = metrics.get_meter("aquifer_manager")

_PREFIX: Final = "aquifer.remote."
_COUNTERS: Final = (
    semconv.COPY_BYTES,
    semconv.COPY_REQUESTS,
    semconv.COPY_ERRORS,
    semconv.FETCH_BYTES,
    semconv.FETCH_REQUESTS,
    semconv.FETCH_ERRORS,
    semconv.DELETE_BYTES,
    semconv.DELETE_REQUESTS,
    semconv.DELETE_ERRORS,
    semconv.INDEX_ANSWERS,
)


class OtelTelemetry:
    """Implements `Telemetry`; counters are named `aquifer.remote.<name>` and split by topic."""

    def __init__(self) -> None:
        self._counters = {
            metric.name.removeprefix(_PREFIX): _METER.create_counter(
                metric.name, unit=metric.unit, description=metric.doc
            )
            for metric in _COUNTERS
        }

    @contextmanager
    def span(
        self, name: str, topic_id_partition: TopicIdPartition, attributes: Mapping[str, int | str]
    ) -> Iterator[None]:
        """See `Telemetry`."""
        named = {f"aquifer.{key}": value for key, value in attributes.items()}
        named |= {
            semconv.TOPIC.key: topic_id_partition.topic,
            semconv.TOPIC_ID.key: str(topic_id_partition.topic_id),
            semconv.PARTITION.key: topic_id_partition.partition,
        }
        with _TRACER.start_as_current_span(name, attributes=named) as span:
            try:
                yield
            except AquiferError as error:
                span.set_attribute(semconv.ERROR_REASON.key, error.reason.value)
                raise

    def count(self, name: str, value: int, topic: str) -> None:
        """See `Telemetry`."""
        self._counters[name].add(value, {semconv.TOPIC.key: topic})


class GaugeSource(Protocol):
    """What the gauges look at, from the exporter's thread."""

    def lag_by_topic(self) -> dict[str, CopyLag]:
        """Lag of all partitions of each topic together; the age is the oldest one's."""
        ...

    def task_states(self) -> list[TaskState]:
        """All tasks."""
        ...

    def readers(self) -> tuple[int, int]:
        """Remote reads under way, and waiting."""
        ...

    def indexes_behind(self) -> int:
        """Partitions whose local remote index does not reach far enough."""
        ...


_SOURCES: Final["weakref.WeakSet[GaugeSource]"] = weakref.WeakSet()


def observe(source: GaugeSource) -> None:
    """Shows a manager in the gauges as long as it exists."""
    _SOURCES.add(source)


def _gauge(
    metric: semconv.Metric, observations: Callable[[GaugeSource], list[Observation]]
) -> None:
    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return [each for source in list(_SOURCES) for each in observations(source)]

    _METER.create_observable_gauge(
        metric.name, callbacks=[callback], unit=metric.unit, description=metric.doc
    )


def _by_topic(source: GaugeSource, value: Callable[[CopyLag], int]) -> list[Observation]:
    return [
        Observation(value(lag), {semconv.TOPIC.key: topic})
        for topic, lag in source.lag_by_topic().items()
    ]


def _by_kind(
    source: GaugeSource,
    value: Callable[[TaskState], int],
    combine: Callable[[list[int]], int],
) -> list[Observation]:
    found: dict[str, list[int]] = {}
    for task in source.task_states():
        found.setdefault(task.key.type.name.lower(), []).append(value(task))
    return [
        Observation(combine(values), {semconv.TASK.key: kind}) for kind, values in found.items()
    ]


_gauge(semconv.COPY_LAG_BYTES, lambda source: _by_topic(source, lambda lag: lag.size_bytes))
_gauge(semconv.COPY_LAG_SEGMENTS, lambda source: _by_topic(source, lambda lag: lag.segments))
_gauge(semconv.COPY_LAG_AGE, lambda source: _by_topic(source, lambda lag: lag.age_ms))
_gauge(
    semconv.TASK_SINCE_SUCCESS,
    lambda source: _by_kind(source, lambda task: task.without_success_ms, max),
)
_gauge(
    semconv.TASKS_FAILING,
    lambda source: _by_kind(source, lambda task: int(task.consecutive_failures > 0), sum),
)
_gauge(semconv.READER_ACTIVE, lambda source: [Observation(source.readers()[0])])
_gauge(semconv.READER_PENDING, lambda source: [Observation(source.readers()[1])])
_gauge(semconv.INDEX_BEHIND, lambda source: [Observation(source.indexes_behind())])
