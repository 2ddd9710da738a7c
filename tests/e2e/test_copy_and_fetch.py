"""What was produced is consumed as it was, whatever tier it lies in."""

import asyncio

import pytest
from fixtures.kafka_traffic import (
    assert_same,
    consume,
    consume_with_aiokafka,
    consume_with_kafka_python,
    produce,
    records_of,
)
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_three_clients_read_a_cold_log(
    suite: RunningSuite, topics: MakeTopic, codec: str
) -> None:
    """Records."""
    topic = await topics()
    acked = await asyncio.to_thread(
        produce, suite.bootstrap, topic.name, records_of(1000), compression_type=codec
    )
    await topic.until_cold()
    end = len(acked)
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, end), acked)
    assert_same(
        await asyncio.to_thread(consume_with_kafka_python, suite.bootstrap, topic.name, end), acked
    )
    assert_same(await consume_with_aiokafka(suite.bootstrap, topic.name, end), acked)
