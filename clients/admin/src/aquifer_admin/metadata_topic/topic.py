"""The metadata topic of a Kafka cluster: read to its end, written to, made when it is missing."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from aquifer_core.errors import (
    CorruptRecordError,
    DeadlineExceededError,
    ErrorReason,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_core.java_hash import kafka_metadata_partition
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aquifer_admin.metadata_topic.failures import told
from aquifer_admin.metadata_topic.records import Record, Segment, Update, decode, encode

NAME: Final = "__remote_log_metadata"
_PARTITIONS: Final = 50
_KAFKA_ALPHABET: Final = str.maketrans("+/", "-_")
_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "remote.storage.enable": "false",
}
_DESCRIBED_AT_ONCE: Final = 500
_MESSAGES_AT_ONCE: Final = 1_000


class MetadataTopic:
    """Blocking, for a thread of its own; what the cluster fails with is told by every method.

    Args:
        properties: of librdkafka, `bootstrap.servers` among them.
        timeout_s: of each request, and the longest time without news.
    """

    def __init__(self, properties: Mapping[str, str], timeout_s: float) -> None:
        self._properties: dict[str, Any] = {**properties, "log_level": 0}
        self._timeout_s = timeout_s

    def read(self, progress: Callable[[int], None]) -> list[Record]:
        """Every record up to the end that the topic has now, partition by partition in its order.

        Raises:
            RemoteResourceNotFoundError: there is no such topic.
            CorruptRecordError: a record cannot be read.
        """
        with self._failures():
            consumer = Consumer(
                {
                    **self._properties,
                    "group.id": "aquifer-admin",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                }
            )
            try:
                return self._read_all(consumer, progress)
            finally:
                consumer.close()

    def write(self, records: Iterable[Segment | Update], progress: Callable[[int], None]) -> None:
        """Append records, in their order within each user partition, and wait until all are acknowledged."""
        failures: list[KafkaError] = []
        with self._failures():
            producer = Producer(
                {
                    **self._properties,
                    "enable.idempotence": True,
                    "on_delivery": lambda error, _: failures.append(error) if error else None,
                }
            )
            partitions = len(self._partitions(AdminClient(self._properties)))
            for number, record in enumerate(records):
                _append(producer, record, partitions)
                progress(number)
            left = producer.flush(self._timeout_s)
            if failures:
                raise KafkaException(failures[0])
        if left:
            raise DeadlineExceededError(f"{NAME}: {left} records were not acknowledged in time")

    def make(self, replication_factor: int) -> None:
        """Make the topic as a broker would; nothing happens when it exists."""
        new = NewTopic(NAME, _PARTITIONS, replication_factor, config=_CONFIG)
        with self._failures():
            admin = AdminClient(self._properties)
            try:
                for future in admin.create_topics([new], request_timeout=self._timeout_s).values():
                    future.result(self._timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def user_partitions(self, topic: str | None = None) -> list[tuple[str, str, int]]:
        """Topic, topic id and number of every partition of the cluster, or of one topic.

        Raises:
            RemoteResourceNotFoundError: there is no such topic.
        """
        with self._failures():
            admin = AdminClient(self._properties)
            listed = sorted(admin.list_topics(timeout=self._timeout_s).topics)
            if topic is not None and topic not in listed:
                raise _missing(topic)
            names = [topic] if topic is not None else listed
            return [
                each
                for start in range(0, len(names), _DESCRIBED_AT_ONCE)
                for each in self._described(admin, names[start : start + _DESCRIBED_AT_ONCE])
            ]

    def _failures(self) -> AbstractContextManager[None]:
        return told(str(self._properties["bootstrap.servers"]))

    def _described(self, admin: AdminClient, names: list[str]) -> list[tuple[str, str, int]]:
        futures = admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        found = [future.result(self._timeout_s) for future in futures.values()]
        return [
            (each.name, topic_id_text(each.topic_id), partition.id)
            for each in found
            for partition in each.partitions
        ]

    def _partitions(self, admin: AdminClient) -> list[int]:
        found = admin.list_topics(NAME, timeout=self._timeout_s).topics[NAME]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _missing(NAME)
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _read_all(self, consumer: Consumer, progress: Callable[[int], None]) -> list[Record]:
        waiting = set(self._partitions(AdminClient(self._properties)))
        consumer.assign([TopicPartition(NAME, each, OFFSET_BEGINNING) for each in waiting])
        values: dict[int, list[Record]] = {each: [] for each in waiting}
        news = time.monotonic()
        while waiting:
            messages = consumer.consume(_MESSAGES_AT_ONCE, timeout=1.0)
            if messages:
                news = time.monotonic()
            elif time.monotonic() - news > self._timeout_s:
                raise DeadlineExceededError(f"{NAME}: partitions {sorted(waiting)} did not end")
            for message in messages:
                _take(message, values, waiting)
            progress(sum(map(len, values.values())))
        return [record for partition in sorted(values) for record in values[partition]]


def _take(message: Message, values: dict[int, list[Record]], waiting: set[int]) -> None:
    error, partition = message.error(), message.partition()
    if error is None:
        value = message.value()
        assert partition is not None  # of a message without error
        try:
            values[partition].append(decode(value if isinstance(value, bytes) else b""))
        except CorruptRecordError as failure:
            text = f"{NAME}-{partition} at offset {message.offset()}: {failure.message}"
            raise CorruptRecordError(text) from failure
    elif error.code() == KafkaError._PARTITION_EOF and partition is not None:
        waiting.discard(partition)
    elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
        raise KafkaException(error)


def _append(producer: Producer, record: Segment | Update, partitions: int) -> None:
    where = record.segment_id.topic_id_partition
    number = kafka_metadata_partition(KafkaUuid.parse(where.topic_id), where.partition, partitions)
    while True:
        try:
            producer.produce(NAME, encode(record), partition=number)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def topic_id_text(found: Uuid) -> str:
    """Kafka's text of an id; the library writes it in another alphabet, so that every other one differs."""
    return str(found).translate(_KAFKA_ALPHABET)


def _missing(topic: str) -> RemoteResourceNotFoundError:
    return RemoteResourceNotFoundError(
        f"the Kafka cluster has no topic {topic!r}",
        reason=ErrorReason.TOPIC_NOT_FOUND,
        metadata={"topic": topic},
    )
