"""Apache Kafka with the plugin, while what is below it fails: brokers stay up, nothing is lost, tasks go on by themselves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aquifer_core.state import RemoteLogSegmentState
from confluent_kafka import Message
from fixtures.kafka_cluster import KAFKA_GROUP, SETTLE_S, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_traffic import Puller, assert_same, consume, records_of
from fixtures.polling import eventually

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

RECORDS = 1500
BATCHES = 20
"""Of 16 records of 1 KB: a segment has 320 KB, so that there are some."""


class PatientPuller(Puller):
    """A consumer as applications write them: it goes on after any error that is not fatal."""

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None or error.fatal():
            super()._take(message)
        else:
            self.errors.append(error)


@contextmanager
def brokers_stay_up(suite: KafkaSuite) -> Iterator[None]:
    """Assert that no broker ended meanwhile."""
    before = {name: pid for name, pid in suite.pids().items() if name.startswith("kafka-")}
    yield
    after = {name: pid for name, pid in suite.pids().items() if name.startswith("kafka-")}
    assert after == before


async def until_a_copy_is_under_way(topic: KafkaTopic) -> None:
    async def under_way() -> bool:
        return any(
            each.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            for each in await topic.segments()
        )

    await eventually(under_way, timeout_s=SETTLE_S)


async def test_storage_is_killed_in_the_middle_of_a_copy(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """The broker gives the copy up, copies the segment anew and leaves nothing of the first attempt."""
    topic = await kafka_topics(batches=BATCHES)
    with brokers_stay_up(kafka_suite):
        with kafka_suite.paused("s3"):
            acked = await topic.produce(records_of(RECORDS), apart=False)
            await until_a_copy_is_under_way(topic)
            await kafka_suite.kill("storage")
        await kafka_suite.wait_ready("storage")
        offsets = await topic.until_cold(timeout_s=SETTLE_S)
        assert offsets.local_start > 0
        found = await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, len(acked))
    assert_same(found, acked)


async def test_storage_is_killed_in_the_middle_of_reads(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """A consumer that goes on asking gets every record once, in order."""
    topic = await kafka_topics(batches=BATCHES)
    acked = await topic.produce(records_of(RECORDS), apart=False)
    await topic.until_cold(timeout_s=SETTLE_S)
    small = {"max_partition_fetch_bytes": 65536, "queued_max_messages_kbytes": 64}
    with (
        brokers_stay_up(kafka_suite),
        PatientPuller(kafka_suite.bootstrap, topic.name, **small) as reader,
    ):
        for until in (RECORDS // 10, RECORDS // 2):
            await asyncio.to_thread(reader.pull, until)
            await kafka_suite.kill("storage")
        found = await asyncio.to_thread(reader.pull, len(acked), SETTLE_S)
        await kafka_suite.wait_ready("storage")
    assert_same(found, acked)


async def test_metadata_is_down_for_a_while(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic
) -> None:
    """Producing and reading both tiers go on, copying waits and makes up for it."""
    topic = await kafka_topics(batches=BATCHES)
    acked = await topic.produce(records_of(RECORDS), apart=False)
    before = await topic.until_cold(timeout_s=SETTLE_S)
    with brokers_stay_up(kafka_suite):
        async with kafka_suite.down("metadata"):
            acked += await topic.produce(records_of(RECORDS, seed=1), apart=False)
            found = await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, len(acked))
            assert_same(found, acked)
            assert (await topic.offsets()).tiered == before.tiered
        after = await topic.until_cold(timeout_s=SETTLE_S)
    assert after.tiered > before.tiered
    found = await asyncio.to_thread(consume, kafka_suite.bootstrap, topic.name, len(acked))
    assert_same(found, acked)
