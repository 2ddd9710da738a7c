"""The topic of failed deletions on a broker (SR-35)."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError
from aquifer_broker.app import BrokerNode
from aquifer_manager.adapters.failure_topic import KafkaFailureTopic
from fixtures.broker_node import bootstrap

TOPIC = "__remote_segments_to_be_deleted"


async def test_records_and_tombstones_arrive_in_a_topic_made_when_missing(
    broker: BrokerNode,
) -> None:
    for _ in range(2):
        async with KafkaFailureTopic(bootstrap(broker), TOPIC) as topic:
            await topic.publish("segment", b"{}")
            await topic.publish("segment", None)
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap(broker), auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            read = [await consumer.getone() for _ in range(4)]
    finally:
        await consumer.stop()
    assert [(record.key, record.value) for record in read] == [
        (b"segment", b"{}"),
        (b"segment", None),
    ] * 2


async def test_without_brokers_publishing_fails_and_leaves_nothing_open() -> None:
    async with KafkaFailureTopic("127.0.0.1:1", TOPIC) as topic:
        with pytest.raises(KafkaConnectionError):
            await topic.publish("segment", None)
