"""Load with librdkafka: 1 KB records that do not compress.

Its settings are the defaults but one: a consumer whose queue is full fetches again when there is room, and not a whole second later
(`fetch.queue.backoff.ms`). With the default a run is either three times as long as it could be or not, by chance.
"""

import gc
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

RECORD_BYTES = 1000
_CLIENT_S = 30.0
_IDLE_S = 60.0
_BATCH = 2_000
_POLL_S = 0.1


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config=dict(config))
    for future in admin.create_topics([new]).values():
        future.result(_CLIENT_S)


def set_topic_config(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_CLIENT_S)


def produce(bootstrap: str, topic: str, partitions: int, total_bytes: int) -> float:
    """Produces until all is acknowledged and returns MB/s of values."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(error),
        }
    )
    values = [os.urandom(RECORD_BYTES) for _ in range(1024)]
    count = total_bytes // RECORD_BYTES
    started = time.perf_counter()
    for number in range(count):
        value = values[number % len(values)]
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 5000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{left} records left, failures: {failures[:1]}")
    return count * RECORD_BYTES / 1e6 / seconds


def consume(bootstrap: str, topic: str, until: Mapping[int, int]) -> float:
    """Consumes every partition from offset 0 up to an offset and returns MB/s of values.

    What the client does with a record is left out: it is handed over, in batches, and dropped.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in until])
    try:
        with _old_objects_left_alone():
            started = time.perf_counter()
            _consume_all(consumer, topic, dict(until))
            seconds = time.perf_counter() - started
    finally:
        consumer.close()
    return sum(until.values()) * RECORD_BYTES / 1e6 / seconds


def _consume_all(consumer: Consumer, topic: str, left: dict[int, int]) -> None:
    last_news = time.perf_counter()
    while left:
        messages = consumer.consume(_BATCH, _POLL_S)
        now = time.perf_counter()
        if messages:
            last_news = now
        elif now - last_news > _IDLE_S:
            raise TimeoutError(f"nothing came for {_IDLE_S:.0f} s, left: {left}")
        for message in messages[-1:]:
            if message.error() is not None:
                raise KafkaException(message.error())
        _drop_finished(consumer, topic, left)


@contextmanager
def _old_objects_left_alone() -> Iterator[None]:
    """The collector would go through all that the suite has loaded once in 70,000 records: 100 ms that are not the consumer's work."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _drop_finished(consumer: Consumer, topic: str, left: dict[int, int]) -> None:
    asked = [TopicPartition(topic, number) for number in left]
    for position in consumer.position(asked):
        if position.offset >= left[position.partition]:
            del left[position.partition]
            consumer.pause([TopicPartition(topic, position.partition)])
