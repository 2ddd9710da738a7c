"""Jobs that delete go on where a kill -9 had stopped them."""

import asyncio
import shutil

import pytest
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)

PROCESSES = ("broker-1", "manager", "metadata", "storage")


@pytest.mark.parametrize("process", PROCESSES)
async def test_a_deleted_topic_leaves_nothing_whoever_dies_meanwhile(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, process: str
) -> None:
    """Deletion is a job that nobody forgets, wherever it was interrupted (T20)."""
    topic = await chaos_topics(2)
    for partition in range(2):
        await asyncio.to_thread(
            produce, chaos_suite.bootstrap, topic.name, records_of(600), partition=partition
        )
        await topic.until_cold(partition)
    await topic.delete()
    await chaos_suite.kill(process)
    await chaos_suite.wait_ready(process)
    await topic.until_gone()


async def test_a_topic_deleted_without_a_manager_is_forgotten_by_nobody(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """Manager down, its disk lost, and the broker that was to tell it dies as well: metadata knows (T20)."""
    topic = await chaos_topics()
    await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(600))
    await topic.until_cold()
    async with chaos_suite.down("manager"):
        await topic.delete()
        await chaos_suite.kill("broker-1")
        await chaos_suite.wait_ready("broker-1")
        assert await topic.segments() != []
        shutil.rmtree(chaos_suite.stack.settings.data_dir / "manager")
    await topic.until_gone()


@pytest.mark.parametrize("process", ["manager", "broker-1"])
async def test_expiration_goes_on_after_a_crash(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, process: str
) -> None:
    """Nothing that was marked for deletion stays, nothing else goes, the log start never moves back (SR-17)."""
    topic = await chaos_topics()
    acked = await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(600))
    await topic.until_cold()
    limit = 3 * 64 * 1024
    await topic.alter(retention_bytes=str(limit))
    await chaos_suite.kill(process)
    await chaos_suite.wait_ready(process)
    await topic.until_start_at_least(300)
    await topic.until_settled()
    offsets = await topic.offsets()
    remote = sum(segment.segment_size_bytes for segment in await topic.segments())
    assert limit <= remote + topic.local_bytes() + 64 * 1024
    consumed = await asyncio.to_thread(
        consume, chaos_suite.bootstrap, topic.name, offsets.end, start=offsets.log_start
    )
    assert_same(consumed, acked[offsets.log_start :])
