"""What is measured of the traffic with Kafka clients."""

from typing import Final

from aquifer_rpc import semconv
from opentelemetry import metrics

from aquifer_broker.protocol.versions import ApiKey

__all__ = ["connections_changed", "fetched", "produced", "request_served"]

_METER: Final = metrics.get_meter("aquifer_broker")
_DURATION: Final = _METER.create_histogram(
    semconv.KAFKA_REQUEST_DURATION.name,
    unit=semconv.KAFKA_REQUEST_DURATION.unit,
    description=semconv.KAFKA_REQUEST_DURATION.doc,
)
_PRODUCED: Final = _METER.create_counter(
    semconv.KAFKA_PRODUCE_BYTES.name,
    unit=semconv.KAFKA_PRODUCE_BYTES.unit,
    description=semconv.KAFKA_PRODUCE_BYTES.doc,
)
_FETCHED: Final = _METER.create_counter(
    semconv.KAFKA_FETCH_BYTES.name,
    unit=semconv.KAFKA_FETCH_BYTES.unit,
    description=semconv.KAFKA_FETCH_BYTES.doc,
)
_CONNECTIONS: Final = _METER.create_gauge(
    semconv.KAFKA_CONNECTIONS.name,
    unit=semconv.KAFKA_CONNECTIONS.unit,
    description=semconv.KAFKA_CONNECTIONS.doc,
)

_API_ATTRIBUTES: Final = {api_key: {semconv.KAFKA_API.key: api_key.name} for api_key in ApiKey}


def request_served(api_key: ApiKey, seconds: float) -> None:
    """A request was answered."""
    _DURATION.record(seconds, _API_ATTRIBUTES[api_key])


def produced(topic: str, size_bytes: int) -> None:
    """Records of a producer were appended."""
    _PRODUCED.add(size_bytes, {semconv.TOPIC.key: topic})


def fetched(topic: str, size_bytes: int) -> None:
    """Records go to a client."""
    _FETCHED.add(size_bytes, {semconv.TOPIC.key: topic})


class _OpenConnections:
    """How many there are, over all listeners of the process."""

    count = 0


def connections_changed(by: int) -> None:
    """So many more connections are open now."""
    _OpenConnections.count += by
    _CONNECTIONS.set(_OpenConnections.count)
