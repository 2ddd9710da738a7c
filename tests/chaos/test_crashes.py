"""kill -9 of every process, and of all at once, in the middle of producing, copying and reading."""

import asyncio
from functools import partial

import pytest
from fixtures.kafka_traffic import assert_same, consume
from fixtures.polling import eventually
from fixtures.steady_traffic import SteadyTraffic
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

# What the store wrote late is waited for at the end.
pytestmark = [pytest.mark.xdist_group(CHAOS_GROUP), pytest.mark.timeout(420)]

PROCESSES = ("broker-1", "storage", "manager", "metadata", "postgres", "s3")
VICTIMS = (*((process,) for process in PROCESSES), PROCESSES)
KILLS = 2


@pytest.mark.parametrize("victims", VICTIMS, ids=" ".join)
async def test_no_acknowledged_record_is_lost_doubled_or_changed(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, victims: tuple[str, ...]
) -> None:
    """Whoever dies, clients go on by themselves, and what a crash left half done is cleaned up (T16, SR-16, SR-36)."""
    topic = await chaos_topics()
    with SteadyTraffic(chaos_suite.bootstrap, topic.name) as traffic:
        await eventually(lambda: traffic.progress() >= (300, 1), timeout_s=120)
        for _ in range(KILLS):
            before = traffic.progress()
            await asyncio.gather(*map(chaos_suite.kill, victims))
            await asyncio.gather(*map(chaos_suite.wait_ready, victims))
            await eventually(partial(traffic.has_gone_on, before), timeout_s=120)
    acked = traffic.acked
    assert [record.offset for record in acked] == list(range(len(acked)))
    await topic.until_cold()
    assert_same(
        await asyncio.to_thread(consume, chaos_suite.bootstrap, topic.name, len(acked)), acked
    )
