"""Topics that are created by asking for their metadata."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from aquifer_broker.app import BrokerNode
from aquifer_broker.cluster.ports import NewTopic, TopicResult
from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.protocol.versions import ApiKey
from fixtures.broker_logs import client_batch
from fixtures.broker_node import broker_properties
from fixtures.cluster_metadata import InMemoryClusterMetadata
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode


class HangingMetadata(InMemoryClusterMetadata):
    """Creates topics when it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()
        self.asked: list[list[str]] = []

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        self.asked.append([each.name for each in topics])
        await self.go.wait()
        return await super().create_topics(topics, validate_only=validate_only)


async def codes(wire: KafkaWire, *names: str) -> dict[str, ErrorCode]:
    topics = [{"topic_id": None, "name": name} for name in names]
    asked = {
        "topics": topics,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    response = await wire.ask(ApiKey.METADATA, 12, asked)
    return {each.name: each.error_code for each in response.topics}


async def test_producing_does_not_wait_for_a_creation_that_hangs(tmp_path: Path) -> None:
    """The answer of one connection waits for the one before, and a hanging metadata service is no reason to wait."""
    metadata = HangingMetadata()
    properties = broker_properties(tmp_path, request_timeout_ms="600000")
    async with (
        BrokerNode(BrokerConfig.parse(properties), metadata=metadata) as node,
        KafkaWire(node.port("PLAINTEXT")) as wire,
    ):
        topic = await WireTopic.create(wire)
        metadata.go.clear()
        metadata.asked.clear()
        for _ in range(2):
            assert await codes(wire, "t", "new", "new") == {
                "t": ErrorCode.none,
                "new": ErrorCode.leader_not_available,
            }
            assert (await topic.produce(client_batch())).error_code is ErrorCode.none
        assert metadata.asked == [["new"]]
        metadata.go.set()

        async def is_there() -> bool:
            return (await codes(wire, "new"))["new"] is ErrorCode.none

        await eventually(is_there)


async def test_a_broker_stops_while_a_creation_hangs(tmp_path: Path) -> None:
    metadata = HangingMetadata()
    properties = broker_properties(tmp_path, request_timeout_ms="600000")
    async with BrokerNode(BrokerConfig.parse(properties), metadata=metadata) as node:
        metadata.go.clear()
        async with KafkaWire(node.port("PLAINTEXT")) as wire:
            assert await codes(wire, "new") == {"new": ErrorCode.leader_not_available}
    assert "new" not in metadata.topics
