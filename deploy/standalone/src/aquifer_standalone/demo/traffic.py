"""Produces and consumes the data set with librdkafka, as any user would."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from aquifer_standalone.demo.dataset import Line, timestamp_ms
from aquifer_standalone.demo.digest import PartitionDigest

_ERRORS = 3
"""Level of librdkafka's own log: what passes by itself is not shown."""
_REPORT_EVERY = 20_000
_FLUSH_S = 120.0
_IDLE_S = 60.0

Progress = Callable[[int], None]
"""Called now and then with the bytes moved so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was moved, how fast, and what it was.

    Attributes:
        cold_bytes: bytes of consumed records that no broker's disk had when consuming began.
    """

    digests: Mapping[int, PartitionDigest]
    seconds: float
    cold_bytes: int = 0

    @property
    def records(self) -> int:
        """Records of all partitions."""
        return sum(digest.records for digest in self.digests.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values of all partitions."""
        return sum(digest.size_bytes for digest in self.digests.values())

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6) a second."""
        return self.size_bytes / 1e6 / self.seconds


def produce(
    bootstrap: str,
    topic: str,
    lines: Iterator[Line],
    *,
    partitions: int,
    base_ms: int,
    progress: Progress,
) -> Outcome:
    """Produces every line with an idempotent producer and waits until all are acknowledged.

    The topic must be new: offsets are counted from 0.

    Raises:
        KafkaException: a record was not acknowledged.
    """
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": _ERRORS,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(error),
        }
    )
    digests = {partition: PartitionDigest() for partition in range(partitions)}
    started = time.monotonic()
    moved = 0
    for number, line in enumerate(lines):
        partition = number % partitions
        digest = digests[partition]
        at_ms = timestamp_ms(base_ms, digest.records)
        _produce_one(producer, topic, partition, line, at_ms)
        digest.add(digest.records, at_ms, line.key, line.value)
        moved += len(line.key) + len(line.value)
        if number % _REPORT_EVERY == 0:
            producer.poll(0)
            progress(moved)
    left = producer.flush(_FLUSH_S)
    if failures:
        raise KafkaException(failures[0])
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")
    progress(moved)
    return Outcome(digests=digests, seconds=time.monotonic() - started)


def _produce_one(producer: Producer, topic: str, partition: int, line: Line, at_ms: int) -> None:
    while True:
        try:
            producer.produce(topic, line.value, line.key, partition, timestamp=at_ms)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def consume(
    bootstrap: str,
    topic: str,
    group: str,
    until: Mapping[int, int],
    *,
    progress: Progress,
    cold_below: Mapping[int, int] | None = None,
) -> Outcome:
    """Consumes with a new group from offset 0 until every partition has reached its end, and commits.

    Args:
        until: partition -> log end offset.
        progress: told the bytes consumed so far.
        cold_below: partition -> first offset on a broker's disk; bytes of records below count as cold.

    Raises:
        KafkaException: the consumer failed.
        TimeoutError: nothing came for a minute.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader = _Reader(until, cold_below or {}, progress)
    started = time.monotonic()
    try:
        consumer.subscribe([topic])
        reader.read_all(consumer)
        consumer.commit(
            offsets=[TopicPartition(topic, number, end) for number, end in until.items()],
            asynchronous=False,
        )
    finally:
        consumer.close()
    return Outcome(
        digests=reader.digests, seconds=time.monotonic() - started, cold_bytes=reader.cold_bytes
    )


class _Reader:
    def __init__(
        self, until: Mapping[int, int], cold_below: Mapping[int, int], progress: Progress
    ) -> None:
        self.digests = {partition: PartitionDigest() for partition in until}
        self.cold_bytes = 0
        self._wanted = sum(until.values())
        self._cold_below = cold_below
        self._progress = progress
        self._moved = 0

    def read_all(self, consumer: Consumer) -> None:
        seen = 0
        last_news = time.monotonic()
        while seen < self._wanted:
            messages = consumer.consume(num_messages=10_000, timeout=1.0)
            if messages:
                last_news = time.monotonic()
            elif time.monotonic() - last_news > _IDLE_S:
                raise TimeoutError(f"{self._wanted - seen} of {self._wanted} records did not come")
            seen += sum(self._take(message) for message in messages)
            self._progress(self._moved)

    def _take(self, message: Message) -> bool:
        """Adds a record; False for a passing error, which librdkafka retries by itself."""
        error = message.error()
        if error is not None:
            if error.retriable() or error.code() == KafkaError.KAFKA_STORAGE_ERROR:
                return False
            raise KafkaException(error)
        partition, offset = message.partition(), message.offset()
        assert partition is not None  # of a message without error
        assert offset is not None
        key, value = message.key(), message.value()
        self.digests[partition].add(offset, message.timestamp()[1], key, value)
        size = len(key or b"") + len(value or b"")
        self._moved += size
        if offset < self._cold_below.get(partition, 0):
            self.cold_bytes += size
        return True
