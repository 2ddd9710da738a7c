"""The client of the cluster metadata against the real service on a real PostgreSQL."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_client import ClusterMetadataClient, ConfigResource, NewTopic
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid
from aquifer_rpc.calls import call_unary
from aquifer_rpc.server import GrpcServer


@pytest.fixture
async def client(metadata_server: GrpcServer) -> AsyncIterator[ClusterMetadataClient]:
    async with ClusterMetadataClient.connect(f"127.0.0.1:{metadata_server.port}") as made:
        yield made


async def _register(stub: Any, broker_id: int) -> None:
    broker = pb.Broker(
        broker_id=broker_id,
        incarnation=str(KafkaUuid.random()),
        endpoints=[pb.Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092)],
        log_dirs=["a"],
    )
    await call_unary(stub.RegisterBroker, pb.RegisterBrokerRequest(broker=broker))


async def test_topics_are_created_seen_changed_and_deleted(
    client: ClusterMetadataClient, cluster_stub: Any
) -> None:
    await _register(cluster_stub, 1)
    wanted = NewTopic(
        name="t", num_partitions=2, replication_factor=1, configs={"retention.ms": "1000"}
    )

    [created] = await client.create_topics([wanted])
    assert (created.name, created.reason) == ("t", None)
    [grown] = await client.create_partitions({"t": 3})
    assert grown.reason is None

    snapshot = await client.snapshot()
    assert snapshot.version > 0
    assert [(broker.broker_id, broker.alive) for broker in snapshot.brokers] == [(1, True)]
    assert snapshot.brokers[0].endpoints[0].listener == "PLAINTEXT"
    topic = snapshot.topic("t")
    assert topic is not None
    assert topic.topic_id == created.topic_id
    assert [(each.partition, each.leader) for each in topic.partitions] == [(0, 1), (1, 1), (2, 1)]
    assert topic.configs == {"retention.ms": "1000"}
    assert topic.id_of(2).topic == "t"

    [deleted] = await client.delete_topics(["t"])
    assert deleted.reason is None
    assert (await client.snapshot()).topic("t") is None


async def test_failures_are_told_per_topic(
    client: ClusterMetadataClient, cluster_stub: Any
) -> None:
    await _register(cluster_stub, 1)
    topic = NewTopic(name="t", num_partitions=1, replication_factor=1)
    await client.create_topics([topic])

    again, illegal = await client.create_topics(
        [topic, NewTopic(name="not legal!", num_partitions=1, replication_factor=1)]
    )

    assert again.reason is ErrorReason.TOPIC_ALREADY_EXISTS
    assert illegal.reason is ErrorReason.INVALID_TOPIC
    assert illegal.message


async def test_settings_are_set_read_and_taken_back(
    client: ClusterMetadataClient, cluster_stub: Any
) -> None:
    await _register(cluster_stub, 1)
    await client.create_topics([NewTopic(name="t", num_partitions=1, replication_factor=1)])
    topic = ConfigResource.TOPIC

    after = await client.alter_configs(
        topic, "t", {"retention.ms": "5", "cleanup.policy": "delete"}
    )
    assert after == {"retention.ms": "5", "cleanup.policy": "delete"}
    await client.alter_configs(topic, "t", {"retention.ms": None})
    assert await client.describe_configs(topic, "t") == {"cleanup.policy": "delete"}
    with pytest.raises(RemoteResourceNotFoundError):
        await client.describe_configs(topic, "unknown")


async def test_groups_and_their_offsets_are_listed(
    client: ClusterMetadataClient, cluster_stub: Any
) -> None:
    offsets = [pb.GroupOffset(topic="t", partition=1, offset=7)]
    request = pb.CommitOffsetsRequest(group_id="g", offsets=offsets)
    await call_unary(cluster_stub.CommitOffsets, request)

    assert await client.list_groups() == ["g"]
    assert await client.fetch_offsets("g") == {("t", 1): 7}
    assert await client.fetch_offsets("none") == {}
