"""Unmodified clients at their default settings: what one writes every other reads, byte for byte."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

import aiokafka
import confluent_kafka
import pytest
from aquifer_broker.app import BrokerNode
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.broker_node import bootstrap
from fixtures.kafka_clients import create_topic, in_thread, kafka, poll_messages

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]

CODECS: Final = ["none", "gzip", "snappy", "lz4", "zstd"]

RECORDS: Final[list[Record]] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (None, None, []),
    (b"", b"", []),
    (b"headers", b"v", [("a", b"1"), ("a", b"2"), ("empty", b"")]),
    (b"utf-8", "äöü€😀".encode(), [("kopf", "ß".encode())]),
    (b"large", os.urandom(900_000), []),
    (b"zeros", bytes(500_000), []),
    *((str(number).encode(), b"x" * number, []) for number in range(100)),
]

# These clients refuse to send nothing.
SOMETHING: Final = [record for record in RECORDS if record[:2] != (None, None)]


def produce_with_librdkafka(address: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "compression.type": codec})
    for key, value, headers in RECORDS:
        producer.produce(topic, key=key, value=value, headers=headers, partition=0)
    assert producer.flush(60) == 0


def produce_with_kafka_python(address: str, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=address, compression_type=None if codec == "none" else codec
    )
    try:
        sent = [
            producer.send(topic, key=key, value=value, headers=headers, partition=0)
            for key, value, headers in SOMETHING
        ]
        for future in sent:
            future.get(30)
    finally:
        producer.close()


async def produce_with_aiokafka(address: str, topic: str, codec: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address, compression_type=None if codec == "none" else codec
    )
    async with producer:
        for key, value, headers in SOMETHING:
            await producer.send(topic, key=key, value=value, headers=headers, partition=0)
        await producer.flush()


def read_with_librdkafka(address: str, topic: str, count: int = len(RECORDS)) -> list[Record]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "lib", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        messages = poll_messages(consumer, count)
    finally:
        consumer.close()
    return [(each.key(), each.value(), list(each.headers() or [])) for each in messages]


def read_with_kafka_python(address: str, topic: str) -> list[Record]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    records: list[Record] = []
    try:
        for record in consumer:
            records.append((record.key, record.value, list(record.headers)))
            if len(records) == len(RECORDS):
                break
    finally:
        consumer.close()
    return records


async def read_with_aiokafka(address: str, topic: str) -> list[Record]:
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id="aio", auto_offset_reset="earliest"
    )
    records: list[Record] = []
    async with consumer:
        async with asyncio.timeout(60):
            async for record in consumer:
                records.append((record.key, record.value, list(record.headers)))
                if len(records) == len(RECORDS):
                    break
    return records


async def finished(work: Callable[..., Any], *args: Any) -> Any:
    if asyncio.iscoroutinefunction(work):
        return await work(*args)
    return await in_thread(work, *args)


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_reaches_every_client_byte_for_byte(
    broker: BrokerNode, codec: str
) -> None:
    address = bootstrap(broker)
    await in_thread(create_topic, address, "t")
    await in_thread(produce_with_librdkafka, address, "t", codec)
    for read in (read_with_librdkafka, read_with_kafka_python, read_with_aiokafka):
        assert await finished(read, address, "t") == RECORDS


@pytest.mark.parametrize("produce", [produce_with_kafka_python, produce_with_aiokafka])
@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_other_producers_are_read_byte_for_byte(
    broker: BrokerNode, produce: Callable[..., Any], codec: str
) -> None:
    address = bootstrap(broker)
    await in_thread(create_topic, address, "t")
    await finished(produce, address, "t", codec)
    assert await in_thread(read_with_librdkafka, address, "t", len(SOMETHING)) == SOMETHING


async def test_producing_to_an_unknown_topic_creates_it(broker: BrokerNode) -> None:
    await in_thread(produce_with_librdkafka, bootstrap(broker), "made", "none")
    assert await in_thread(read_with_librdkafka, bootstrap(broker), "made") == RECORDS


async def test_an_unknown_topic_is_not_created_where_that_is_off(start_broker: Any) -> None:
    node = await start_broker(1, auto_create_topics_enable="false")

    def produce() -> Any:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap(node), "topic.metadata.propagation.max.ms": 100}
        )
        errors: list[Any] = []
        producer.produce("none", b"v", on_delivery=lambda error, _: errors.append(error))
        producer.flush(60)
        return errors[0].code()

    assert await in_thread(produce) == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert node.view.topic("none") is None


async def test_a_record_over_the_limit_is_refused_and_the_next_one_taken(
    broker: BrokerNode,
) -> None:
    address = bootstrap(broker)
    await in_thread(create_topic, address, "t", 1, 1)

    def produce() -> list[Any]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "message.max.bytes": 5_000_000}
        )
        errors: list[Any] = []
        for size in (2_000_000, 10):
            producer.produce("t", bytes(size), on_delivery=lambda error, _: errors.append(error))
            producer.flush(60)
        return errors

    too_large, fine = await in_thread(produce)
    assert too_large.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert fine is None


async def test_topics_are_listed_grown_and_deleted(broker: BrokerNode) -> None:
    address = bootstrap(broker)

    def administer() -> None:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        assert len(admin.list_topics(timeout=60).topics["t"].partitions) == 2
        partitions = confluent_kafka.admin.NewPartitions("t", 5)
        admin.create_partitions([partitions])["t"].result(60)
        described = admin.describe_cluster().result(60)
        assert [node.id for node in described.nodes] == [1]
        with pytest.raises(confluent_kafka.KafkaException) as twice:
            admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        assert twice.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        assert len(admin.list_topics(timeout=60).topics["t"].partitions) == 5
        admin.delete_topics(["t"])["t"].result(60)
        assert "t" not in admin.list_topics(timeout=60).topics

    await in_thread(administer)
