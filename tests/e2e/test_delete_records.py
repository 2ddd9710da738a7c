"""DeleteRecords in both tiers."""

import asyncio

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from fixtures.kafka_traffic import Puller, assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def delete_records(suite: RunningSuite, topic: str, before_offset: int) -> int:
    """Delete through librdkafka; the low watermark afterwards."""
    admin = AdminClient({"bootstrap.servers": suite.bootstrap, "log_level": 0})
    (future,) = admin.delete_records([TopicPartition(topic, 0, before_offset)]).values()
    low_watermark: int = (await asyncio.wait_for(asyncio.wrap_future(future), 60)).low_watermark
    return low_watermark


async def test_records_below_an_offset_in_the_cold_part_are_gone(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Segments wholly below it are cleaned up, the one that holds it stays (SR-25)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(400))
    offsets = await topic.until_cold()
    before = await topic.segments()
    inside = before[2]
    cut = inside.start_offset + 1
    assert inside.start_offset < cut <= inside.end_offset
    assert await delete_records(suite, topic.name, cut) == cut
    assert (await topic.offsets()).log_start == cut

    async def cleaned() -> bool:
        return [each.segment_id for each in await topic.segments()] == [
            each.segment_id for each in before[2:]
        ]

    await eventually(cleaned, timeout_s=60)
    consumed = await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end, start=cut)
    assert_same(consumed, acked[cut:])
    with Puller(suite.bootstrap, topic.name, start=cut - 1) as puller:
        with pytest.raises(KafkaException) as caught:
            await asyncio.to_thread(puller.pull, offsets.end)
        assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


async def test_records_up_to_the_high_watermark_are_gone_from_both_tiers(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Offset -1 means the high watermark; no object is left (SR-25)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    await topic.until_cold()
    assert await delete_records(suite, topic.name, -1) == len(acked)
    offsets = await topic.offsets()
    assert (offsets.log_start, offsets.local_start, offsets.end) == (len(acked),) * 3

    async def cleaned() -> bool:
        return not await topic.segments()

    await eventually(cleaned, timeout_s=60)


async def test_an_offset_past_the_high_watermark_is_refused(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Nothing is deleted."""
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(10))
    with pytest.raises(KafkaException) as caught:
        await delete_records(suite, topic.name, 11)
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    assert (await topic.offsets()).log_start == 0
