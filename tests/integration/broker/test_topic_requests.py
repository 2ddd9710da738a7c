"""Requests to create and delete topics that contradict themselves."""

import datetime
import uuid
from typing import Any, Final

from aquifer_broker.app import BrokerNode
from aquifer_broker.protocol.versions import ApiKey
from fixtures.cluster_metadata import InMemoryClusterMetadata
from fixtures.kafka_wire import KafkaWire
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode

_TIMEOUT: Final = datetime.timedelta(seconds=5)


async def delete(wire: KafkaWire, *topics: tuple[str | None, uuid.UUID | None]) -> list[Any]:
    asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    response = await wire.ask(ApiKey.DELETE_TOPICS, 6, {"topics": asked, "timeout": _TIMEOUT})
    return [(each.name, each.topic_id, each.error_code) for each in response.responses]


async def test_a_topic_is_deleted_by_its_name_or_by_its_id_but_not_by_both(
    broker: BrokerNode,
) -> None:
    """The two may be of different topics; both were deleted."""
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topics = [await WireTopic.create(wire, name) for name in ("a", "b", "c")]
        ids = [each.topic_id for each in topics]
        assert await delete(wire, ("a", ids[1]), (None, ids[2]), (None, None)) == [
            ("a", ids[1], ErrorCode.invalid_request),
            ("c", ids[2], ErrorCode.none),
            (None, None, ErrorCode.invalid_request),
        ]
        assert broker.view.topics.keys() == {"a", "b"}
        assert await delete(wire, ("a", None), ("a", None), (None, ids[1])) == [
            ("a", None, ErrorCode.invalid_request),
            ("a", None, ErrorCode.invalid_request),
            ("b", ids[1], ErrorCode.none),
        ]
    assert broker.view.topics.keys() == {"a"}


async def test_every_topic_of_a_creation_is_answered_also_when_the_metadata_service_is_away(
    broker: BrokerNode, cluster_metadata: InMemoryClusterMetadata
) -> None:
    topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    asked = {
        "topics": [{**topic, "name": name} for name in ("twice", "once", "twice")],
        "timeout": _TIMEOUT,
        "validate_only": False,
    }
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        await cluster_metadata.go_away()
        response = await wire.ask(ApiKey.CREATE_TOPICS, 7, asked)
    assert {each.name: each.error_code for each in response.topics} == {
        "once": ErrorCode.request_timed_out,
        "twice": ErrorCode.invalid_request,
    }
