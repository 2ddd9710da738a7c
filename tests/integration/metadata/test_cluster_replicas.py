"""ClusterMetadataService through gRPC, on a real PostgreSQL: in-sync replicas, and replicas that are refused."""

from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.errors import (
    ConcurrentUpdateError,
    InvalidRequestError,
    NotLeaderError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from fixtures.cluster_calls import Stub, create, partition_of, register
from fixtures.metadata_service import metadata_settings

UNREPLICATED = "brokers do not replicate yet"


async def test_isr_changes_compare_the_partition_epoch_and_the_leader(
    replicating_stub: Stub,
) -> None:
    for broker in (1, 2):
        await register(replicating_stub, broker)
    made = await create(replicating_stub, "orders", replication_factor=2)
    before = made.topic.partitions[0]
    leader, follower = before.replicas

    async def change(**fields: Any) -> pb.Partition:
        request: dict[str, Any] = {
            "topic_id": made.topic_id,
            "partition": 0,
            "broker_id": leader,
            "leader_epoch": 0,
            "partition_epoch": before.partition_epoch,
            "isr": [leader],
        }
        answer: pb.AlterPartitionResponse = await call_unary(
            replicating_stub.AlterPartition, pb.AlterPartitionRequest(**(request | fields))
        )
        return answer.partition

    with pytest.raises(NotLeaderError):
        await change(broker_id=follower)
    shrunk = await change()
    assert (list(shrunk.isr), shrunk.partition_epoch) == ([leader], before.partition_epoch + 1)
    assert await change() == shrunk, "a repeat after a lost answer succeeds"
    with pytest.raises(ConcurrentUpdateError):
        await change(isr=[leader, follower])
    with pytest.raises(InvalidRequestError):
        await change(isr=[leader, 9], partition_epoch=shrunk.partition_epoch)
    await register(replicating_stub, leader)
    with pytest.raises(StaleLeaderEpochError) as stale:
        await change()
    assert stale.value.metadata == {"given": "0", "current": "1"}
    with pytest.raises(RemoteResourceNotFoundError):
        await change(partition=7)


async def test_a_reassignment_keeps_the_old_replicas_until_the_new_ones_are_in_sync(
    replicating_stub: Stub,
) -> None:
    for broker in (1, 2):
        await register(replicating_stub, broker)
    made = await create(
        replicating_stub,
        "orders",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[pb.ReplicaAssignment(partition=0, replicas=[1])],
    )
    await call_unary(
        replicating_stub.ReassignPartitions,
        pb.ReassignPartitionsRequest(
            reassignments=[pb.PartitionReassignment(topic="orders", partition=0, replicas=[2])]
        ),
    )
    moving = await partition_of(replicating_stub, "orders")
    assert (list(moving.replicas), list(moving.isr), moving.leader) == ([2, 1], [1], 1)
    request = pb.AlterPartitionRequest(
        topic_id=made.topic_id,
        partition=0,
        broker_id=1,
        leader_epoch=moving.leader_epoch,
        partition_epoch=moving.partition_epoch,
        isr=[1, 2],
    )
    moved = (await call_unary(replicating_stub.AlterPartition, request)).partition
    assert (list(moved.replicas), list(moved.isr), moved.leader) == ([2], [2], 2)
    assert moved.leader_epoch == moving.leader_epoch + 1


async def test_more_replicas_than_brokers_keep_are_refused_with_the_remedy(
    cluster_stub: Stub,
) -> None:
    """Nobody is promised a copy that would be empty after a failover."""
    for broker in (1, 2):
        await register(cluster_stub, broker)
    chosen = {"num_partitions": -1, "replication_factor": -1}
    assignment = pb.ReplicaAssignment(partition=0, replicas=[1, 2])
    for refused in (
        await create(cluster_stub, "x", replication_factor=2),
        await create(cluster_stub, "x", **chosen, assignments=[assignment]),
    ):
        assert refused.error_reason == "INVALID_REPLICATION_FACTOR"
        assert UNREPLICATED in refused.error_message
        assert "use 1" in refused.error_message
    await create(cluster_stub, "orders")
    grown = await call_unary(
        cluster_stub.CreatePartitions,
        pb.CreatePartitionsRequest(
            topics=[
                pb.NewPartitions(
                    name="orders",
                    total_count=2,
                    assignments=[pb.ReplicaAssignment(partition=1, replicas=[1, 2])],
                )
            ]
        ),
    )
    assert grown.results[0].error_reason == "INVALID_REPLICATION_FACTOR"
    assert UNREPLICATED in grown.results[0].error_message


async def test_a_topic_of_another_time_does_not_grow_by_empty_replicas(
    metadata_dsn: str,
) -> None:
    """It was made with two replicas, and is given more partitions by a service that allows one."""
    wide = metadata_settings(metadata_dsn, max_replication_factor=2)
    async with running_server(wide) as server, connect(f"127.0.0.1:{server.port}") as channel:
        stub = ClusterMetadataServiceStub(channel)
        for broker in (1, 2):
            await register(stub, broker)
        await create(stub, "orders", replication_factor=2)
    narrow = metadata_settings(metadata_dsn)
    async with running_server(narrow) as server, connect(f"127.0.0.1:{server.port}") as channel:
        answer = await call_unary(
            ClusterMetadataServiceStub(channel).CreatePartitions,
            pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="orders", total_count=2)]),
        )
    assert answer.results[0].error_reason == "INVALID_REPLICATION_FACTOR"


@pytest.mark.parametrize("replicas", [[2], [1, 2]])
async def test_a_partition_is_not_moved_to_where_it_would_begin_empty(
    cluster_stub: Stub, replicas: list[int]
) -> None:
    for broker in (1, 2):
        await register(cluster_stub, broker)
    await create(
        cluster_stub,
        "orders",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[pb.ReplicaAssignment(partition=0, replicas=[1])],
    )
    before = await partition_of(cluster_stub, "orders")

    async def reassign(to: list[int]) -> None:
        reassignment = pb.PartitionReassignment(topic="orders", partition=0, replicas=to)
        request = pb.ReassignPartitionsRequest(reassignments=[reassignment])
        await call_unary(cluster_stub.ReassignPartitions, request)

    with pytest.raises(InvalidRequestError, match=UNREPLICATED) as refused:
        await reassign(replicas)
    assert refused.value.reason == "INVALID_REPLICATION_FACTOR"
    assert await partition_of(cluster_stub, "orders") == before
    await reassign([1])
    assert list((await partition_of(cluster_stub, "orders")).replicas) == [1]
