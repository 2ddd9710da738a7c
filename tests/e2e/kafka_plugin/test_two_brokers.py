"""Apache Kafka with the plugin, two brokers: whoever leads goes on where the other stopped (K-7.1)."""

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka.admin import AdminClient, NewPartitions
from fixtures.kafka_cluster import KAFKA_GROUP, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_reads import remote_reads
from fixtures.kafka_replicas import lead, move_to, reassign
from fixtures.kafka_traffic import Record, assert_same, consume, records_of
from fixtures.tiered_topic import ADMIN_S

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    ".kafka_cleanshutdown",
)


async def assert_all_there(topic: KafkaTopic, acked: Sequence[Record], partition: int = 0) -> None:
    """All records are there from the log start on; the leader alone reads remote segments: each that is there, once or more."""
    remote = [each.start_offset for each in await topic.segments(partition)]
    async with remote_reads(topic, partition) as reads:
        found = await asyncio.to_thread(
            consume,
            topic.suite.bootstrap,
            topic.name,
            acked[-1].offset + 1,
            partition=partition,
            start=OFFSET_BEGINNING,
        )
        assert_same(found, acked)
        await reads.were({topic.leaders[partition]: remote})


async def test_a_partition_moves_to_another_broker_and_its_leader_goes_on_copying(
    kafka_topics: MakeKafkaTopic,
) -> None:
    """First expanded, then moved (ReassignReplicaExpandTest, ReassignReplicaMoveTest, SR-21, SR-28)."""
    topic = await kafka_topics(assignment=((1,),))
    acked = await topic.produce(records_of(3))
    await topic.until_offsets(local_start=2, tiered=1)
    await reassign(topic, {0: [2, 1]})
    await lead(topic, 2)
    acked += await topic.produce(records_of(1, seed=1))
    await topic.until_offsets(local_start=3, tiered=2)
    await assert_all_there(topic, acked)
    await reassign(topic, {0: [1]})
    await topic.until_led_by(1)
    acked += await topic.produce(records_of(1, seed=2))
    await topic.until_offsets(local_start=4, tiered=3)
    await assert_all_there(topic, acked)


async def test_partitions_shrink_to_the_other_broker(kafka_topics: MakeKafkaTopic) -> None:
    """ReassignReplicaShrinkTest."""
    topic = await kafka_topics(assignment=((1, 2), (2, 1)))
    acked = {partition: await topic.produce(records_of(3), partition) for partition in (0, 1)}
    for partition in (0, 1):
        await topic.until_offsets(partition, local_start=2, tiered=1)
    await reassign(topic, {0: [2], 1: [1]})
    for partition, leader in ((0, 2), (1, 1)):
        await topic.until_led_by(leader, partition)
        acked[partition] += await topic.produce(records_of(1, seed=1), partition)
        await topic.until_offsets(partition, local_start=3, tiered=2)
        await assert_all_there(topic, acked[partition], partition)


async def test_new_partitions_are_tiered_like_the_old_ones(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """PartitionsExpandTest."""
    topic = await kafka_topics(assignment=((1, 2),))
    acked = {0: await topic.produce(records_of(3))}
    await topic.until_offsets(local_start=2, tiered=1)
    admin = AdminClient({"bootstrap.servers": kafka_suite.bootstrap, "log_level": 0})
    asked = NewPartitions(topic.name, 3, [[1, 2], [2, 1]])
    for future in admin.create_partitions([asked]).values():
        await asyncio.to_thread(future.result, ADMIN_S)
    topic.partitions = 3
    await topic.refresh()
    for partition in (1, 2):
        acked[partition] = await topic.produce(records_of(3, seed=partition), partition)
    acked[0] += await topic.produce(records_of(3, seed=9))
    for partition, local_start in ((0, 5), (1, 2), (2, 2)):
        await topic.until_offsets(partition, local_start=local_start)
        await assert_all_there(topic, acked[partition], partition)


async def test_a_replica_in_another_directory_reads_and_copies(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """AlterLogDirTest: the replica that leads is moved (SR-28)."""
    topic = await kafka_topics(assignment=((1, 2),))
    acked = await topic.produce(records_of(3))
    await topic.until_offsets(local_start=2, tiered=1)
    present = topic.folder().parent
    [other] = [each for each in kafka_suite.cluster.log_dirs(1) if each != present]
    await move_to(topic, 1, other)
    acked += await topic.produce(records_of(1, seed=1))
    await topic.until_offsets(local_start=3, tiered=2)
    await assert_all_there(topic, acked)


async def test_restarted_brokers_with_lost_checkpoints_find_their_remote_part(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """FetchFromLeaderWithCorruptedCheckpointTest, and the bounce of OffloadAndConsumeFromLeaderTest.

    Of a topic that no other broker has, records were deleted up to the middle of a remote segment: they stay deleted (SR-25).
    """
    topic = await kafka_topics(batches=1, assignment=((2, 1),))
    acked = await topic.produce(records_of(3))
    await topic.until_offsets(local_start=2, tiered=1)
    alone = await kafka_topics(batches=3, assignment=((2,),))
    kept = (await alone.produce(records_of(11)))[4:]
    await alone.until_offsets(local_start=9, tiered=8)
    await alone.delete_records(4)
    async with kafka_suite.stopped("kafka-2"):
        await topic.until_led_by(1)
        acked += await topic.produce(records_of(1, seed=1))
        await topic.until_offsets(local_start=3, tiered=2)
        for folder in kafka_suite.cluster.log_dirs(2):
            for name in CHECKPOINTS:
                (folder / name).unlink(missing_ok=True)
    await topic.refresh()
    await lead(topic, 2)
    acked += await topic.produce(records_of(1, seed=2))
    await topic.until_offsets(local_start=4, tiered=3)
    await assert_all_there(topic, acked)
    await alone.until_led_by(2)
    await alone.until_offsets(log_start=4, local_start=9, tiered=8, end=11)
    await alone.until_settled()
    assert [each.start_offset for each in await alone.segments()] == [3, 6]
    await assert_all_there(alone, kept)
    await alone.delete_records(10)
    await alone.until_settled()
    await assert_all_there(alone, kept[6:])
