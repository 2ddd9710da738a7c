"""What was produced is consumed as it was, whatever tier it lies in."""

import asyncio
import random

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from fixtures.kafka_traffic import (
    Puller,
    Record,
    assert_same,
    consume,
    consume_with_aiokafka,
    consume_with_kafka_python,
    produce,
    records_of,
)
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic
from kafka import KafkaProducer  # type: ignore[import-untyped]

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE_BYTES = 900_000


def odd_records(seed: int) -> list[Record]:
    """Records of every shape that the protocol allows."""
    source = random.Random(seed)
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again"))
    shapes = [
        Record(key=None, value=None, timestamp_ms=1),
        Record(key=b"", value=b"", timestamp_ms=5),
        Record(key=b"tombstone", value=None, headers=headers, timestamp_ms=2_000_000_000_000),
        Record(key=None, value=source.randbytes(LARGE_BYTES), timestamp_ms=3),
        Record(key=source.randbytes(5000), value="Grüße, 世界".encode() * 500, timestamp_ms=4),
    ]
    return shapes + records_of(400, value_bytes=2000, seed=seed)


async def test_every_record_comes_back_through_every_client(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Headers, nulls, large records, all codecs; consumers at their defaults (SR-16, SR-23, SR-37)."""
    topic = await topics(segment_bytes=str(1024 * 1024), message_timestamp_after_max_ms=str(2**62))
    acked: list[Record] = []
    for seed, codec in enumerate(CODECS):
        acked += await asyncio.to_thread(
            produce, suite.bootstrap, topic.name, odd_records(seed), compression_type=codec
        )
    offsets = await topic.until_cold()
    assert (offsets.log_start, offsets.end) == (0, len(acked))
    assert 0 < offsets.local_start < offsets.end
    asked = (suite.bootstrap, topic.name, offsets.end)
    assert_same(await asyncio.to_thread(consume, *asked), acked)
    assert_same(await asyncio.to_thread(consume_with_kafka_python, *asked), acked)
    assert_same(await consume_with_aiokafka(*asked), acked)


async def test_producers_of_other_libraries_are_tiered_as_well(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Producers at their defaults, too (SR-37)."""
    topic = await topics()
    values = [b"%d " % number * 300 for number in range(300)]

    def with_kafka_python() -> None:
        producer = KafkaProducer(bootstrap_servers=suite.bootstrap)
        try:
            futures = [producer.send(topic.name, value, partition=0) for value in values]
            assert [each.get(30).offset for each in futures] == list(range(len(values)))
        finally:
            producer.close()

    await asyncio.to_thread(with_kafka_python)
    producer = AIOKafkaProducer(bootstrap_servers=suite.bootstrap)
    await producer.start()
    try:
        for value in values:
            await producer.send(topic.name, value, partition=0)
    finally:
        await producer.stop()
    offsets = await topic.until_cold()
    consumed = await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end)
    assert [record.value for record in consumed] == values * 2


@pytest.mark.parametrize("fetch_path", ["cold", "cold to hot"])
async def test_a_consumer_starts_at_any_offset(
    suite: RunningSuite, topics: MakeTopic, fetch_path: str
) -> None:
    """In the middle of a batch, at a segment's first and last offset, just below the local log (SR-23)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(400))
    offsets = await topic.until_cold()
    second = (await topic.segments())[1]
    until = offsets.local_start if fetch_path == "cold" else offsets.end
    starts = [7, second.start_offset, second.end_offset, offsets.local_start - 1]
    for start in starts:
        consumed = await asyncio.to_thread(consume, suite.bootstrap, topic.name, until, start=start)
        assert_same(consumed[: until - start], acked[start:until])


async def test_a_reader_behind_passes_from_cold_to_hot_while_records_arrive(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """One consumer, one producer that goes on, and local retention between them."""
    topic = await topics()
    first = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    await topic.until_cold()
    with Puller(suite.bootstrap, topic.name) as puller:
        await asyncio.to_thread(puller.pull, 100)
        more = await asyncio.to_thread(
            produce, suite.bootstrap, topic.name, records_of(600, seed=1)
        )
        consumed = await asyncio.to_thread(puller.pull, len(first) + len(more))
    assert_same(consumed, first + more)


async def test_a_batch_larger_than_every_limit_is_still_read(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """A fetch of one byte gets a whole batch, so that no consumer is stuck (T27)."""
    topic = await topics()
    acked = await asyncio.to_thread(
        produce, suite.bootstrap, topic.name, records_of(150), linger_ms=50
    )
    offsets = await topic.until_cold()
    with Puller(
        suite.bootstrap, topic.name, fetch_message_max_bytes=1, fetch_wait_max_ms=50
    ) as puller:
        assert_same(await asyncio.to_thread(puller.pull, offsets.end), acked)


async def test_many_cold_partitions_are_read_by_one_consumer(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Partitions of one fetch are read at once, none starves (T26)."""
    partitions = 8
    topic = await topics(partitions)
    acked = {
        number: await asyncio.to_thread(
            produce,
            suite.bootstrap,
            topic.name,
            records_of(200, seed=number),
            partition=number,
        )
        for number in range(partitions)
    }
    for number in range(partitions):
        await topic.until_cold(number)
    with Puller(suite.bootstrap, topic.name) as puller:
        consumed = await asyncio.to_thread(
            puller.pull_all, {number: len(records) for number, records in acked.items()}
        )
    for number in range(partitions):
        assert_same(consumed[number], acked[number])
