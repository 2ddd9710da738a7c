"""A tiered topic grows."""

import asyncio

import pytest
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def test_new_partitions_are_tiered_and_old_ones_go_on(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """On every broker (PartitionsExpandTest, K-7.1)."""
    topic = await topics()
    acked = {0: await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(200))}
    await topic.until_cold()
    await topic.expand(4)
    assert set(topic.leaders.values()) == {1, 2}
    for partition in range(4):
        more = await asyncio.to_thread(
            produce,
            suite.bootstrap,
            topic.name,
            records_of(200, seed=partition + 1),
            partition=partition,
        )
        acked[partition] = acked.get(partition, []) + more
    for partition, records in acked.items():
        offsets = await topic.until_cold(partition)
        assert offsets.end == len(records)
        consumed = await asyncio.to_thread(
            consume, suite.bootstrap, topic.name, offsets.end, partition=partition
        )
        assert_same(consumed, records)
