"""Apache Kafka with the plugin: what expires, is deleted or is turned off leaves the store (K-7.1)."""

import asyncio
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from fixtures.kafka_cluster import KAFKA_GROUP, SETTLE_S, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_reads import remote_reads
from fixtures.kafka_replicas import lead, reassign
from fixtures.kafka_traffic import Record, assert_same, consume, records_of
from fixtures.polling import eventually
from fixtures.scrub import scrub_topic, stored_objects

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

HOUR_MS = 3_600_000


def checkpointed_epochs(topic: KafkaTopic) -> list[str]:
    """Entries of the leader epoch checkpoint, as `epoch offset`."""
    lines = (topic.folder() / "leader-epoch-checkpoint").read_text().splitlines()
    return lines[2:]


async def read_from_start(topic: KafkaTopic, until_offset: int) -> list[Record]:
    """What a consumer gets that begins where the log does."""
    bootstrap, start = topic.suite.bootstrap, OFFSET_BEGINNING
    return await asyncio.to_thread(consume, bootstrap, topic.name, until_offset, start=start)


async def until_starts(topic: KafkaTopic, first_remote: int | None) -> None:
    """Wait until the remote part begins there; None: until there is none."""

    async def begins() -> bool:
        found = [each.start_offset for each in await topic.segments()]
        return min(found, default=None) == first_remote

    await eventually(begins, timeout_s=SETTLE_S, interval_s=0.1)


@pytest.mark.parametrize("breach", ["retention_bytes", "retention_ms"])
async def test_expired_segments_leave_the_store(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, breach: str
) -> None:
    """By size and by time (DeleteSegmentsByRetentionSizeTest, DeleteSegmentsByRetentionTimeTest, SR-17)."""
    topic = await kafka_topics(message_timestamp_after_max_ms=str(2 * HOUR_MS))
    now_ms = time.time_ns() // 1_000_000
    records = [*records_of(3), Record(key=b"k3", value=b"v3", timestamp_ms=now_ms + HOUR_MS)]
    acked = await topic.produce(records)
    await topic.until_offsets(local_start=3, tiered=2)
    async with remote_reads(topic) as reads:
        await topic.alter(**{breach: "1"})
        await topic.until_offsets(log_start=3, local_start=3, end=4)
        await until_starts(topic, None)
        await reads.were({1: [0, 1, 2]}, "delete")
    await eventually(
        lambda: not stored_objects(kafka_suite, topic.tip()), timeout_s=SETTLE_S, interval_s=0.1
    )
    assert [line.split()[1] for line in checkpointed_epochs(topic)] == ["3"]
    found = await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, 4, start=3)
    assert_same(found, acked[3:])


async def test_deleted_records_take_whole_segments_with_them(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """DeleteSegmentsDueToLogStartOffsetBreachTest with its two leaders, and the end of ListOffsetsTest (SR-25)."""
    topic = await kafka_topics(batches=2, assignment=((1, 2),))
    acked = await topic.produce(records_of(6))
    await topic.until_offsets(local_start=4, tiered=3)
    async with remote_reads(topic) as reads:
        await topic.delete_records(3)
        await until_starts(topic, 2)
        await reads.were({1: [0]}, "delete")
    assert (await topic.offsets()).log_start == 3
    assert [line.split()[1] for line in checkpointed_epochs(topic)] == ["3"]
    bootstrap = kafka_suite.bootstrap
    async with remote_reads(topic) as reads:
        found = await asyncio.to_thread(consume, bootstrap, topic.name, 6, start=3)
        assert_same(found, acked[3:])
        await reads.were({1: [2]})
    await topic.delete_records(4)
    await until_starts(topic, None)
    await topic.until_offsets(log_start=4, local_start=4, tiered=3, end=6)
    await reassign(topic, {0: [2, 1]})
    await lead(topic, 2)
    acked += await topic.produce(records_of(4, seed=1))
    await topic.until_offsets(local_start=8, tiered=7)
    async with remote_reads(topic) as reads:
        await topic.delete_records(7)
        await until_starts(topic, 6)
        await reads.were({2: [4]}, "delete")
        found = await asyncio.to_thread(consume, bootstrap, topic.name, 10, start=7)
        assert_same(found, acked[7:])
        await reads.were({2: [6]})


async def test_records_deleted_up_to_the_middle_of_a_segment_are_gone_and_the_others_are_read(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """First in a remote segment, then in the local one, which is copied whole all the same (SR-25, K-3.10)."""
    topic = await kafka_topics(batches=3, assignment=((2,),))
    acked = await topic.produce(records_of(11))
    await topic.until_offsets(local_start=9, tiered=8)
    async with remote_reads(topic) as reads:
        await topic.delete_records(4)
        await until_starts(topic, 3)
        await reads.were({2: [0]}, "delete")
        assert_same(await read_from_start(topic, 11), acked[4:])
        await reads.were({2: [3, 6]})
    await scrub_topic(kafka_suite, topic.tip())
    async with remote_reads(topic) as reads:
        await topic.delete_records(10)
        await until_starts(topic, None)
        await reads.were({2: [3, 6]}, "delete")
    await topic.until_offsets(log_start=10, local_start=10, end=11)
    acked += await topic.produce(records_of(5, seed=1))
    await topic.until_cold()
    await until_starts(topic, 9)
    assert_same(await read_from_start(topic, 16), acked[10:])


async def test_a_deleted_topic_leaves_nothing(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """Two partitions with two leaders, each of which deletes what it leads (DeleteTopicTest)."""
    topic = await kafka_topics(assignment=((1, 2), (2, 1)))
    for partition in (0, 1):
        await topic.produce(records_of(3), partition)
        await topic.until_cold(partition)
    keys = stored_objects(kafka_suite, topic.tip())
    assert {key.split("/")[1] for key in keys} == {"0", "1"}
    async with remote_reads(topic, 0) as first, remote_reads(topic, 1) as second:
        await topic.delete()
        await topic.until_gone()
        await first.were({1: [0, 1]}, "delete")
        await second.were({2: [0, 1]}, "delete")


async def test_tiering_is_turned_on_for_a_topic_with_data(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """EnableRemoteLogOnTopicTest."""
    topic = await kafka_topics(
        assignment=((1, 2), (2, 1)), remote_storage_enable="false", local_retention_bytes="-2"
    )
    acked = {partition: await topic.produce(records_of(3), partition) for partition in (0, 1)}
    assert not stored_objects(kafka_suite, topic.tip())
    await topic.alter(remote_storage_enable="true", local_retention_bytes="1")
    for partition in (0, 1):
        acked[partition] += await topic.produce(records_of(2, seed=1), partition)
        await topic.until_offsets(partition, log_start=0, local_start=4, tiered=3, end=5)
        async with remote_reads(topic, partition) as reads:
            found = await asyncio.to_thread(
                consume, kafka_suite.bootstrap, topic.name, 5, partition=partition
            )
            assert_same(found, acked[partition])
            await reads.were({topic.leaders[partition]: range(4)})


async def test_copying_is_turned_off_and_on_and_tiering_ends_with_the_remote_data(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """DisableRemoteLogOnTopicTest, with its offsets and the segments that are read."""
    topic = await kafka_topics()
    acked = await topic.produce(records_of(3))
    await topic.until_offsets(local_start=2, tiered=1)
    await topic.alter(remote_log_copy_disable="true", local_retention_bytes="-2")
    bootstrap = kafka_suite.bootstrap
    async with remote_reads(topic) as reads:
        assert_same(await asyncio.to_thread(consume, bootstrap, topic.name, 3), acked)
        await reads.were({1: [0, 1]})
    await topic.alter(remote_log_copy_disable="false", local_retention_bytes="1")
    acked += await topic.produce(records_of(1, seed=1))
    await topic.until_offsets(local_start=3, tiered=2)
    await topic.alter(remote_log_copy_disable="true", local_retention_bytes="-2")
    async with remote_reads(topic) as reads:
        assert_same(await asyncio.to_thread(consume, bootstrap, topic.name, 4), acked)
        await reads.were({1: [0, 1, 2]})
    async with remote_reads(topic) as reads:
        await topic.delete_records(1)
        await until_starts(topic, 1)
        await reads.were({1: [0]}, "delete")
    with pytest.raises(KafkaException) as caught:
        await topic.alter(remote_storage_enable="false")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    await topic.alter(remote_storage_enable="false", remote_log_delete_on_disable="true")
    await until_starts(topic, None)
    await topic.until_offsets(log_start=3, end=4)
    assert_same(await asyncio.to_thread(consume, bootstrap, topic.name, 4, start=3), acked[3:])
