"""Produces and consumes the data set with librdkafka, as any user would."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from aquifer_standalone.demo.dataset import Line, timestamp_ms
from aquifer_standalone.demo.digest import PartitionDigest

_REPORT_EVERY = 20_000
_FLUSH_S = 120.0
_IDLE_S = 60.0

Progress = Callable[[int], None]
"""Called now and then with the bytes moved so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was moved, how fast, and what it was."""

    digests: Mapping[int, PartitionDigest]
    seconds: float

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
    bootstrap: str, topic: str, group: str, until: Mapping[int, int], progress: Progress
) -> Outcome:
    """Consumes with a new group from offset 0 until every partition has reached its end, and commits.

    Args:
        until: partition -> log end offset.

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
    digests = {partition: PartitionDigest() for partition in until}
    started = time.monotonic()
    try:
        consumer.subscribe([topic])
        _consume_all(consumer, until, digests, progress)
        consumer.commit(
            offsets=[TopicPartition(topic, number, end) for number, end in until.items()],
            asynchronous=False,
        )
    finally:
        consumer.close()
    return Outcome(digests=digests, seconds=time.monotonic() - started)


def _consume_all(
    consumer: Consumer,
    until: Mapping[int, int],
    digests: Mapping[int, PartitionDigest],
    progress: Progress,
) -> None:
    wanted = sum(until.values())
    seen = moved = 0
    last_news = time.monotonic()
    while seen < wanted:
        messages = consumer.consume(num_messages=10_000, timeout=1.0)
        if messages:
            last_news = time.monotonic()
        elif time.monotonic() - last_news > _IDLE_S:
            raise TimeoutError(f"{wanted - seen} of {wanted} records did not come")
        for message in messages:
            error = message.error()
            if error is not None:
                if error.retriable() or error.code() == KafkaError.KAFKA_STORAGE_ERROR:
                    continue
                raise KafkaException(error)
            key, value = message.key(), message.value()
            partition, offset = message.partition(), message.offset()
            assert partition is not None  # of a message without error
            assert offset is not None
            digests[partition].add(offset, message.timestamp()[1], key, value)
            moved += len(key or b"") + len(value or b"")
            seen += 1
        progress(moved)
