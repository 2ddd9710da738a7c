"""ListOffsets of a log in two tiers: special offsets and offsets by time."""

import asyncio
import time
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from fixtures.kafka_traffic import Record, produce, records_of
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic, TieredTopic
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka import TopicPartition as PyTopicPartition
from kafka.admin import OffsetSpec  # type: ignore[import-untyped]

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


async def produce_apart(suite: RunningSuite, topic: TieredTopic, records: list[Record]) -> None:
    """Produce each record as a batch of its own."""
    for record in records:
        await asyncio.to_thread(produce, suite.bootstrap, topic.name, [record])


async def test_offsets_of_a_log_of_three_small_segments(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """The vector of Kafka's ListOffsetsTest, on one replica (K-7.1, SR-26, SR-27)."""
    value_bytes = 400
    # A batch of one such record takes 472 bytes: two fit into a segment.
    topic = await topics(
        segment_bytes="1000", index_interval_bytes="1", file_delete_delay_ms="1000"
    )
    t = time.time_ns() // 1_000_000
    records = [
        Record(key=b"k%d" % number, value=b"v" * value_bytes, timestamp_ms=t + number)
        for number in range(6)
    ]
    await produce_apart(suite, topic, records)
    await topic.until_cold()
    epoch = (await topic.list_offset(LATEST))[0]
    assert [(each.start_offset, each.end_offset) for each in await topic.segments()] == [
        (0, 1),
        (2, 3),
    ]
    special = {
        EARLIEST: 0,
        EARLIEST_LOCAL: 4,
        LATEST_TIERED: 3,
        LATEST: 6,
        EARLIEST_PENDING_UPLOAD: 4,
    }
    for timestamp, offset in special.items():
        assert await topic.list_offset(timestamp) == (epoch, offset, -1), timestamp
    by_time = {t - 1: 0, t: 0, t + 1: 1, t + 2: 2, t + 3: 3, t + 4: 4, t + 5: 5}
    for timestamp, offset in by_time.items():
        assert await topic.list_offset(timestamp) == (epoch, offset, max(t, timestamp))
    assert await topic.list_offset(t + 6) == (-1, -1, -1)
    assert await topic.list_offset(MAX_TIMESTAMP) == (epoch, 5, t + 5)


async def test_offsets_after_delete_records(suite: RunningSuite, topics: MakeTopic) -> None:
    """Further vectors of it: the log start moves, the highest remote offset does not."""
    topic = await topics(
        segment_bytes="1000", index_interval_bytes="1", file_delete_delay_ms="1000"
    )
    records = [Record(key=b"k", value=b"v" * 400, timestamp_ms=n + 1) for n in range(6)]
    await produce_apart(suite, topic, records)
    await topic.until_cold()
    admin = AdminClient({"bootstrap.servers": suite.bootstrap, "log_level": 0})
    expected = {3: (3, 4, 3, 6), 4: (4, 4, 3, 6)}
    for before_offset, answers in expected.items():
        (future,) = admin.delete_records([TopicPartition(topic.name, 0, before_offset)]).values()
        await asyncio.to_thread(future.result, 20)
        found = await topic.offsets()
        assert (found.log_start, found.local_start, found.tiered, found.end) == answers
        # Earlier records do not count, though the segment may still be there.
        assert (await topic.list_offset(1))[1] == before_offset


async def test_offsets_by_time_in_both_tiers_through_stock_clients(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Cold first, then hot; -1 past the end, without an error (SR-26)."""
    topic = await topics()
    start_ms = time.time_ns() // 1_000_000 - 3_600_000
    records = records_of(600, start_ms=start_ms)
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records)
    offsets = await topic.until_cold()
    consumer = Consumer(
        {"bootstrap.servers": suite.bootstrap, "group.id": topic.name, "log_level": 0}
    )

    def at(timestamp_ms: int) -> int:
        asked = [TopicPartition(topic.name, 0, timestamp_ms)]
        return int(consumer.offsets_for_times(asked, timeout=60)[0].offset)

    try:
        cold, hot = offsets.local_start // 2, offsets.local_start + 1
        for number in (0, 1, cold, offsets.tiered, offsets.local_start, hot, offsets.end - 1):
            assert await asyncio.to_thread(at, start_ms + number) == number
        assert await asyncio.to_thread(at, 1) == 0
        assert await asyncio.to_thread(at, start_ms + 600) == -1
    finally:
        consumer.close()


async def test_admin_clients_ask_for_special_offsets(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """kafka-python knows the tiered ones (K-3.9)."""
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    offsets = await topic.until_cold()

    def ask() -> dict[str, int]:
        admin = KafkaAdminClient(bootstrap_servers=suite.bootstrap)
        try:
            partition = PyTopicPartition(topic.name, 0)
            return {
                spec.name: admin.list_partition_offsets({partition: spec})[partition].offset
                for spec in OffsetSpec
                if spec is not OffsetSpec.MAX_TIMESTAMP
            }
        finally:
            admin.close()

    assert await asyncio.to_thread(ask) == {
        "LATEST": offsets.end,
        "EARLIEST": 0,
        "EARLIEST_LOCAL": offsets.local_start,
        "LATEST_TIERED": offsets.tiered,
    }


async def test_a_topic_that_is_not_tiered_has_no_remote_offsets(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Earliest-local is the log start, the tiered ones are -1 (K-3.9)."""
    topic = await topics(remote_storage_enable="false", local_retention_bytes="-2")
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(200))
    offsets = await topic.offsets()
    assert (offsets.log_start, offsets.local_start, offsets.tiered, offsets.end) == (0, 0, -1, 200)
    assert (await topic.list_offset(EARLIEST_PENDING_UPLOAD))[1] == -1
    assert not await topic.segments()
