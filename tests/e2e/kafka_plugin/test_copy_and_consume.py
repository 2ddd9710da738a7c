"""Apache Kafka with the plugin: what was produced is consumed as it was, whatever tier it lies in (K-7.1)."""

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from fixtures.kafka_cluster import KAFKA_GROUP, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_reads import remote_reads
from fixtures.kafka_replicas import broker_configs, lead, reassign
from fixtures.kafka_traffic import (
    Puller,
    Record,
    assert_same,
    consume,
    consume_with_kafka_python,
    records_of,
)

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5
ABORTED = b"aborted"


async def ranges(topic: KafkaTopic, partition: int = 0) -> list[tuple[int, int]]:
    """First and last offset of the remote segments."""
    found = await topic.segments(partition)
    return sorted((each.start_offset, each.end_offset) for each in found)


async def consumed_with_java(
    suite: KafkaSuite, topic: KafkaTopic, count: int, *options: str
) -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of each record that Kafka's own console consumer prints."""
    shown = ("offset", "key")
    printed = await suite.tools.console_consumer(topic.name, count, *options, shown=shown)
    lines = [line.split(b"\t", 2) for line in printed.splitlines()]
    return [(int(offset.partition(b":")[2]), key, value) for offset, key, value in lines]


async def test_stock_clients_read_across_tiers(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """Segments of one and of two batches; librdkafka, kafka-python and the Java consumer (OffloadAndConsumeFromLeaderTest).

    One segment is read, then two; the bounce of the broker: test_two_brokers.py (SR-38).
    """
    one = await kafka_topics(batches=1)
    two = await kafka_topics(batches=2)
    of_one = await one.produce(records_of(3))
    of_two = await two.produce([Record(key=b"k%d" % n, value=b"v%d" % n) for n in range(5)])
    assert (await one.until_cold()).local_start == 2
    assert await ranges(one) == [(0, 0), (1, 1)]
    assert (await two.until_cold()).local_start == 4
    assert await ranges(two) == [(0, 1), (2, 3)]
    bootstrap = kafka_suite.bootstrap
    async with remote_reads(one) as reads:
        assert_same(await asyncio.to_thread(consume, bootstrap, one.name, 3, start=1), of_one[1:])
        await reads.were({1: [1]})
    # From the middle of a segment.
    async with remote_reads(two) as reads:
        cold = await asyncio.to_thread(consume, bootstrap, two.name, 5, start=1)
        await reads.were({1: [0, 2]})
    assert [each.value for each in cold] == [b"v1", b"v2", b"v3", b"v4"]
    assert_same(await asyncio.to_thread(consume_with_kafka_python, bootstrap, one.name, 3), of_one)
    java = await consumed_with_java(kafka_suite, two, 5)
    assert java == [(each.offset, each.key, each.value) for each in of_two]


async def test_large_batches_in_every_codec_come_back(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """Segments of a megabyte, batches of the producer's making."""
    topic = await kafka_topics(
        segment_bytes=str(1 << 20), segment_index_bytes="1048576", index_interval_bytes="4096"
    )
    acked: list[Record] = []
    for seed, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = records_of(500, value_bytes=2000, seed=seed)
        acked += await topic.produce(records, apart=False, compression_type=codec)
    offsets = await topic.until_cold()
    assert 0 < offsets.local_start < offsets.end == len(acked)
    found = await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, offsets.end)
    assert_same(found, acked)


async def test_the_active_segment_is_rolled_and_tiered_when_local_retention_says_so(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """RollAndOffloadActiveSegmentTest."""
    topic = await kafka_topics(local_retention_ms="1")
    acked = await topic.produce(records_of(4))
    await topic.until_offsets(local_start=4)
    assert await ranges(topic) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    async with remote_reads(topic) as reads:
        assert_same(await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, 4), acked)
        await reads.were({1: [0, 1, 2, 3]})


async def test_an_index_cache_without_room_costs_bounded_reads(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """OffloadAndTxnConsumeFromLeaderTest: at most 12 reads of segments and of each kind of index for 6 remote records."""
    topic = await kafka_topics()
    acked = await topic.produce(records_of(7))
    assert (await topic.until_cold()).local_start == 6
    configs = {
        "remote.log.index.file.cache.total.size.bytes": "1",
        # Reads that a busy machine gives up would be repeated.
        "remote.fetch.max.wait.ms": "60000",
    }
    async with broker_configs(topic, 1, configs), remote_reads(topic) as reads:
        with Puller(kafka_suite.bootstrap, topic.name, isolation_level="read_committed") as puller:
            assert_same(await asyncio.to_thread(puller.pull, 7), acked)
        await reads.were({1: range(6)})
        assert 6 <= await reads.count() <= 12
        indexes = await reads.indexes()
        assert "OFFSET" in indexes
        # What only a new follower needs is not read.
        assert indexes.keys() <= {"OFFSET", "TIMESTAMP", "TRANSACTION"}
        assert max(indexes.values()) <= 12, indexes


async def test_offsets_of_every_kind_and_by_time(kafka_topics: MakeKafkaTopic) -> None:
    """ListOffsetsTest with its two leaders (SR-26, SR-27); its end, after DeleteRecords: test_retention.py."""
    topic = await kafka_topics(batches=2, assignment=((1, 2),))
    t = time.time_ns() // 1_000_000
    records = [Record(key=b"k", value=b"v%d" % n, timestamp_ms=t + n) for n in range(6)]
    await topic.produce(records[:3])
    await topic.until_offsets(local_start=2, tiered=1)
    first_epoch = (await topic.list_offset(LATEST))[0]
    await reassign(topic, {0: [2, 1]})
    await lead(topic, 2)
    await topic.produce(records[3:])
    await topic.until_offsets(local_start=4, tiered=3)
    second_epoch = (await topic.list_offset(LATEST))[0]
    assert second_epoch > first_epoch
    special = {EARLIEST: 0, EARLIEST_LOCAL: 4, LATEST_TIERED: 3, LATEST: 6}
    by_time = {t - 1: 0, t: 0, t + 1: 1, t + 3: 3, t + 4: 4, t + 5: 5}
    for timestamp, offset in {**special, **by_time}.items():
        epoch = first_epoch if offset < 3 else second_epoch
        assert (await topic.list_offset(timestamp))[:2] == (epoch, offset), timestamp
    assert (await topic.list_offset(t + 6))[:2] == (-1, -1)


async def test_transactions_are_read_committed_across_tiers(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """Aborted records stay hidden when the segment that holds them is remote (TransactionsWithTieredStoreTest, K-3.8)."""
    topic = await kafka_topics(batches=3)
    committed = await asyncio.to_thread(_transactions, kafka_suite.bootstrap, topic.name, 8)
    offsets = await topic.until_cold()
    segments = await topic.segments()
    assert any(not each.txn_index_empty for each in segments)

    def read(isolation: str) -> list[bytes | None]:
        last = offsets.end - 1  # the last commit's marker, which nobody is given
        with Puller(kafka_suite.bootstrap, topic.name, isolation_level=isolation) as puller:
            return [each.value for each in puller.pull(last)]

    assert await asyncio.to_thread(read, "read_committed") == committed
    everything = await asyncio.to_thread(read, "read_uncommitted")
    assert [value for value in everything if value != ABORTED] == committed
    assert everything.count(ABORTED) == 8
    java = await consumed_with_java(
        kafka_suite, topic, len(committed), "--isolation-level", "read_committed"
    )
    assert [value for _, _, value in java] == committed


def _transactions(bootstrap: str, topic: str, rounds: int) -> list[bytes]:
    """An aborted and a committed transaction by turns, each of one batch; the committed values."""
    settings: dict[str, Any] = {"transactional.id": topic, "linger.ms": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions(60)
    committed = []
    for number in range(rounds):
        producer.begin_transaction()
        producer.produce(topic, ABORTED, b"key", 0)
        assert producer.flush(60) == 0
        producer.abort_transaction(60)
        value = b"committed %d" % number
        producer.begin_transaction()
        producer.produce(topic, value, b"key", 0)
        producer.commit_transaction(60)
        committed.append(value)
    return committed
