"""A process that stands still for longer than its lease comes back without harm."""

import asyncio
from functools import partial

import psycopg
import pytest
from fixtures.kafka_traffic import assert_same, consume
from fixtures.polling import eventually
from fixtures.steady_traffic import SteadyTraffic
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)


async def is_alive(suite: RunningSuite) -> bool:
    """Whether metadata counts broker 1 among the living."""
    async with await psycopg.AsyncConnection.connect(suite.stack.postgres.dsn) as connection:
        cursor = await connection.execute("SELECT alive FROM broker WHERE broker_id = 1")
        row = await cursor.fetchone()
    assert row is not None
    return bool(row[0])


async def test_a_broker_frozen_beyond_its_lease_leads_again_in_a_higher_epoch(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """Its leadership is taken away meanwhile; nothing acknowledged is lost, nothing is copied twice (T12, SR-22)."""
    topic = await chaos_topics()
    epoch_before = (await topic.list_offset(-1))[0]
    with SteadyTraffic(chaos_suite.bootstrap, topic.name) as traffic:
        await eventually(lambda: traffic.progress() >= (200, 1), timeout_s=120)
        with chaos_suite.paused("broker-1"):

            async def expired() -> bool:
                return not await is_alive(chaos_suite)

            await eventually(expired, timeout_s=60)
        await eventually(lambda: is_alive(chaos_suite), timeout_s=60)
        await eventually(partial(traffic.has_gone_on, traffic.progress()), timeout_s=120)
    acked = traffic.acked
    assert [record.offset for record in acked] == list(range(len(acked)))
    await topic.until_cold()
    assert (await topic.list_offset(-1))[0] > epoch_before
    assert_same(
        await asyncio.to_thread(consume, chaos_suite.bootstrap, topic.name, len(acked)), acked
    )
