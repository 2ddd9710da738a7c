"""Brokers keep the hot part only, and never drop what is not remote yet."""

import asyncio

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import SMALL_SEGMENT_BYTES, MakeTopic, TieredTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def test_the_local_log_shrinks_and_the_log_start_stays(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Disk use is bounded by local retention, not by the log's length (SR-37)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(600))
    offsets = await topic.until_cold()
    assert offsets.log_start == 0
    assert offsets.local_start == offsets.tiered + 1
    assert topic.local_bytes() <= SMALL_SEGMENT_BYTES
    remote = await topic.segments()
    assert sum(each.segment_size_bytes for each in remote) > 8 * SMALL_SEGMENT_BYTES
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end), acked)


async def test_local_retention_by_size_keeps_that_much(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Whole segments stay up to `local.retention.bytes`."""
    kept_bytes = 4 * SMALL_SEGMENT_BYTES
    topic = await topics(local_retention_bytes=str(kept_bytes))
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(600))
    await topic.until_copied()
    size_bytes = await eventually(
        lambda: topic.local_bytes() if topic.local_bytes() < kept_bytes * 1.5 else 0
    )
    assert size_bytes >= kept_bytes


async def test_local_retention_by_time_rolls_copies_and_drops_even_the_active_segment(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """As in Kafka, an expired active segment is rolled, so that a quiet topic becomes cold as a whole (K-7.1)."""
    topic = await topics(local_retention_ms="1")
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(10))
    end = len(acked)

    async def all_remote() -> bool:
        offsets = await topic.offsets()
        return (offsets.tiered, offsets.local_start) == (end - 1, end)

    await eventually(all_remote, timeout_s=60)
    assert (await topic.offsets()).log_start == 0
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, end), acked)


async def test_what_is_not_remote_stays_local_however_old(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """While copying is paused the local log grows; afterwards it shrinks by itself (K-3.5)."""
    topic = await topics()
    async with suite.manager_stub() as manager:
        await eventually(topic.tasks)
        await manager.PauseTasks(pb.PauseTasksRequest(topics=[topic.name]))
        await eventually(lambda: _idle(topic))
        acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(400))
        await _retention_passed(topic)
        offsets = await topic.offsets()
        assert (offsets.log_start, offsets.local_start, offsets.tiered) == (0, 0, -1)
        assert topic.local_bytes() > 5 * SMALL_SEGMENT_BYTES
        await manager.ResumeTasks(pb.ResumeTasksRequest(topics=[topic.name]))
    offsets = await topic.until_cold()
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end), acked)


async def _idle(topic: TieredTopic) -> bool:
    return not any(task.running for task in await topic.tasks())


async def _retention_passed(topic: TieredTopic) -> None:
    """Wait for a retention pass after now: another topic's log on the same broker shrinks."""
    other = TieredTopic(topic.suite, f"{topic.name}-other", 1)
    await other.create(
        {"segment.bytes": str(SMALL_SEGMENT_BYTES), "retention.bytes": "1"},
        leaders=[topic.leaders[0]],
    )
    await asyncio.to_thread(produce, topic.suite.bootstrap, other.name, records_of(200))
    await eventually(lambda: len(other.local_bases()) == 1)
    await other.delete()
