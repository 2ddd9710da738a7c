"""ClusterMetadataService through gRPC, on a real PostgreSQL: topics and settings: created, changed, refused, deleted."""

from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_core.errors import (
    InvalidConfigurationError,
)
from aquifer_rpc.calls import call_unary
from fixtures.cluster_calls import Stub, create, partition_of, register


async def test_topics_are_spread_over_live_brokers(replicating_stub: Stub) -> None:
    for broker in (1, 2, 3):
        await register(replicating_stub, broker)
    made = await create(replicating_stub, "orders", num_partitions=6, replication_factor=2)
    leaders = [partition.leader for partition in made.topic.partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert all(
        len(set(partition.replicas)) == 2 and list(partition.isr) == list(partition.replicas)
        for partition in made.topic.partitions
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "a/b"}, "INVALID_TOPIC"),
        ({"name": "with_dots"}, "INVALID_TOPIC"),
        ({"name": "orders"}, "TOPIC_ALREADY_EXISTS"),
        ({"name": "x", "num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"name": "x", "replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, "INVALID_CONFIGURATION"),
        ({"name": "x", "configs": {"retenton.ms": "1"}}, "INVALID_CONFIGURATION"),
        (
            {
                "name": "x",
                "configs": {"cleanup.policy": "delete,compact", "remote.storage.enable": "true"},
            },
            "INVALID_CONFIGURATION",
        ),
        (
            {"name": "x", "assignments": [pb.ReplicaAssignment(partition=1, replicas=[1])]},
            "INVALID_PARTITIONS",
        ),
        (
            {"name": "x", "assignments": [pb.ReplicaAssignment(partition=0, replicas=[9])]},
            "INVALID_REPLICATION_FACTOR",
        ),
    ],
)
async def test_topics_that_cannot_be_are_refused_with_their_reason(
    cluster_stub: Stub, fields: dict[str, Any], reason: str
) -> None:
    """SR-12 among others."""
    await register(cluster_stub, 1)
    await create(cluster_stub, "orders")
    await create(cluster_stub, "with.dots")
    if "assignments" in fields:
        fields |= {"num_partitions": -1, "replication_factor": -1}
    assert (await create(cluster_stub, **fields)).error_reason == reason


async def test_deleting_a_topic_forgets_the_offsets_committed_on_it(cluster_stub: Stub) -> None:
    await register(cluster_stub, 1)
    made = await create(cluster_stub, "orders")
    await create(cluster_stub, "bills")
    offsets = [
        pb.GroupOffset(topic=topic, partition=0, offset=7, leader_epoch=-1)
        for topic in ("orders", "bills")
    ]
    await call_unary(
        cluster_stub.CommitOffsets, pb.CommitOffsetsRequest(group_id="g", offsets=offsets)
    )
    request = pb.DeleteTopicsRequest(names=["orders", "none"], topic_ids=[made.topic_id])
    results = (await call_unary(cluster_stub.DeleteTopics, request)).results
    assert [result.error_reason for result in results] == ["", "TOPIC_NOT_FOUND", "TOPIC_NOT_FOUND"]
    assert results[0].topic_id == made.topic_id
    left = await call_unary(cluster_stub.FetchOffsets, pb.FetchOffsetsRequest(group_id="g"))
    assert [offset.topic for offset in left.offsets] == ["bills"]
    again = await create(cluster_stub, "orders")
    assert again.topic_id not in ("", made.topic_id)


async def test_partitions_are_added_and_never_taken_away(cluster_stub: Stub) -> None:
    await register(cluster_stub, 1)
    await create(cluster_stub, "orders", num_partitions=2)

    async def grow(total: int) -> pb.TopicResult:
        request = pb.CreatePartitionsRequest(
            topics=[pb.NewPartitions(name="orders", total_count=total)]
        )
        answer: pb.CreatePartitionsResponse = await call_unary(
            cluster_stub.CreatePartitions, request
        )
        return answer.results[0]

    assert len((await grow(4)).topic.partitions) == 4
    assert (await grow(4)).error_reason == "INVALID_PARTITIONS"
    assert [(await partition_of(cluster_stub, "orders", 3)).leader] == [1]


async def test_settings_are_changed_all_or_none(cluster_stub: Stub) -> None:
    """SR-12: compaction and remote storage exclude each other, in whichever order they are set."""
    await register(cluster_stub, 1)
    await create(cluster_stub, "orders", configs={"cleanup.policy": "compact"})

    async def alter(**settings: str) -> pb.AlterConfigsResponse:
        request = pb.AlterConfigsRequest(
            resource_type=pb.CONFIG_RESOURCE_TYPE_TOPIC,
            resource_name="orders",
            changes=[
                pb.ConfigChange(
                    key=key.replace("_", "."), value=value, operation=pb.CONFIG_OPERATION_SET
                )
                for key, value in settings.items()
            ],
        )
        return await call_unary(cluster_stub.AlterConfigs, request)

    with pytest.raises(InvalidConfigurationError, match="compacted topics are not supported"):
        await alter(retention_ms="1", remote_storage_enable="true")
    described = await call_unary(
        cluster_stub.DescribeConfigs,
        pb.DescribeConfigsRequest(
            resource_type=pb.CONFIG_RESOURCE_TYPE_TOPIC, resource_name="orders"
        ),
    )
    assert dict(described.configs) == {"cleanup.policy": "compact"}
    await alter(cleanup_policy="delete", remote_storage_enable="true")
    with pytest.raises(InvalidConfigurationError, match="compacted topics are not supported"):
        await alter(cleanup_policy="compact")
    with pytest.raises(InvalidConfigurationError, match=r"remote\.log\.delete\.on\.disable"):
        await alter(remote_storage_enable="false")
