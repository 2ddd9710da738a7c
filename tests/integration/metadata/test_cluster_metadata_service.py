"""ClusterMetadataService through gRPC, on a real PostgreSQL."""

from contextlib import aclosing
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.errors import (
    ConcurrentUpdateError,
    InvalidConfigurationError,
    InvalidRequestError,
    NotLeaderError,
    PreconditionError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import connect
from fixtures.metadata_service import metadata_settings
from fixtures.polling import eventually

Stub = Any


async def register(
    stub: Stub, broker_id: int, incarnation: str | None = None, rack: str = ""
) -> pb.RegisterBrokerResponse:
    broker = pb.Broker(
        broker_id=broker_id,
        incarnation=incarnation or str(KafkaUuid.random()),
        endpoints=[pb.Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092 + broker_id)],
        rack=rack,
        log_dirs=["a"],
    )
    return await call_unary(stub.RegisterBroker, pb.RegisterBrokerRequest(broker=broker))


async def create(stub: Stub, name: str, **fields: Any) -> pb.TopicResult:
    fields.setdefault("num_partitions", 1)
    fields.setdefault("replication_factor", 1)
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name=name, **fields)])
    answer: pb.CreateTopicsResponse = await call_unary(stub.CreateTopics, request)
    return answer.results[0]


async def snapshot(stub: Stub) -> pb.WatchClusterMetadataResponse:
    stream = call_stream(
        stub.WatchClusterMetadata, pb.WatchClusterMetadataRequest(from_version=0), deadline_s=10
    )
    async with aclosing(stream) as messages:
        async for message in messages:
            assert message.HasField("snapshot")
            first: pb.WatchClusterMetadataResponse = message
            return first
    raise AssertionError("the watch ended")


async def partition_of(stub: Stub, name: str, number: int = 0) -> pb.Partition:
    topics = (await snapshot(stub)).snapshot.topics
    [topic] = [topic for topic in topics if topic.name == name]
    return topic.partitions[number]


async def test_registering_again_as_the_same_incarnation_changes_nothing(
    cluster_stub: Stub,
) -> None:
    incarnation = str(KafkaUuid.random())
    first = await register(cluster_stub, 1, incarnation)
    assert await register(cluster_stub, 1, incarnation) == first
    assert first.cluster_id == str(KafkaUuid.parse(first.cluster_id))
    assert first.lease_ms == 9_000


async def test_a_new_incarnation_leads_its_partitions_under_a_higher_leader_epoch(
    cluster_stub: Stub,
) -> None:
    first = await register(cluster_stub, 1)
    await create(cluster_stub, "orders")
    before = await partition_of(cluster_stub, "orders")
    second = await register(cluster_stub, 1)
    after = await partition_of(cluster_stub, "orders")
    assert second.broker_epoch > first.broker_epoch
    assert (before.leader, before.leader_epoch) == (1, 0)
    assert (after.leader, after.leader_epoch) == (1, 1)
    assert after.partition_epoch > before.partition_epoch
    with pytest.raises(PreconditionError, match="registered again"):
        await call_unary(
            cluster_stub.Heartbeat,
            pb.HeartbeatRequest(broker_id=1, broker_epoch=first.broker_epoch),
        )


async def test_a_replaced_incarnation_cannot_come_back_while_its_successor_lives(
    cluster_stub: Stub,
) -> None:
    old = str(KafkaUuid.random())
    await register(cluster_stub, 1, old)
    await register(cluster_stub, 1)
    with pytest.raises(PreconditionError) as refused:
        await register(cluster_stub, 1, old)
    assert refused.value.reason == "STALE_BROKER_EPOCH"


async def test_a_clean_shutdown_moves_leadership_to_an_in_sync_replica_and_the_last_one_leaves_none(
    replicating_stub: Stub,
) -> None:
    leases = {broker: await register(replicating_stub, broker) for broker in (1, 2)}
    await create(replicating_stub, "orders", replication_factor=2)
    first = await partition_of(replicating_stub, "orders")
    leader, follower = first.replicas
    for gone in (leader, follower):
        request = pb.UnregisterBrokerRequest(broker_id=gone, broker_epoch=leases[gone].broker_epoch)
        await call_unary(replicating_stub.UnregisterBroker, request)
        await call_unary(replicating_stub.UnregisterBroker, request)
        now = await partition_of(replicating_stub, "orders")
        if gone == leader:
            assert (now.leader, now.leader_epoch, list(now.isr)) == (follower, 1, [follower])
    assert (now.leader, now.leader_epoch, list(now.isr)) == (-1, 2, [follower])
    await register(replicating_stub, leader)
    assert (await partition_of(replicating_stub, "orders")).leader == -1, "it is not in sync"
    await register(replicating_stub, follower)
    now = await partition_of(replicating_stub, "orders")
    assert (now.leader, now.leader_epoch) == (follower, 3)


async def test_an_expired_lease_costs_the_leadership_and_a_heartbeat_says_so(
    database_dsn: str,
) -> None:
    settings = metadata_settings(database_dsn, broker_lease_ms=600)
    async with running_server(settings) as server, connect(f"127.0.0.1:{server.port}") as channel:
        stub = ClusterMetadataServiceStub(channel)
        lease = await register(stub, 1)
        await create(stub, "orders")
        beat = pb.HeartbeatRequest(broker_id=1, broker_epoch=lease.broker_epoch)
        assert (await call_unary(stub.Heartbeat, beat)).lease_ms == 600

        async def leaderless() -> bool:
            return (await partition_of(stub, "orders")).leader == -1

        await eventually(leaderless)
        with pytest.raises(RemoteResourceNotFoundError) as refused:
            await call_unary(stub.Heartbeat, beat)
        assert refused.value.reason == "BROKER_NOT_FOUND"


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


async def test_a_watch_begins_with_a_snapshot_and_goes_on_with_changes_in_order(
    cluster_stub: Stub,
) -> None:
    await register(cluster_stub, 1)
    stream = call_stream(
        cluster_stub.WatchClusterMetadata, pb.WatchClusterMetadataRequest(), deadline_s=20
    )
    async with aclosing(stream) as messages:
        first = await anext(messages)
        assert [broker.broker_id for broker in first.snapshot.brokers] == [1]
        made = await create(cluster_stub, "orders")
        second = await anext(messages)
        assert [topic.topic_id for topic in second.delta.topics] == [made.topic_id]
        assert second.version == first.version + 1
        heartbeat = await anext(messages)
        assert heartbeat.version == second.version
        assert heartbeat.WhichOneof("change") is None
        await call_unary(cluster_stub.DeleteTopics, pb.DeleteTopicsRequest(names=["orders"]))
        third = await anext(messages)
        assert list(third.delta.deleted_topic_ids) == [made.topic_id]


async def test_a_watch_resumes_with_what_it_missed(cluster_stub: Stub) -> None:
    await register(cluster_stub, 1)
    seen = (await snapshot(cluster_stub)).version
    made = [await create(cluster_stub, name) for name in ("a", "b")]
    stream = call_stream(
        cluster_stub.WatchClusterMetadata,
        pb.WatchClusterMetadataRequest(from_version=seen),
        deadline_s=10,
    )
    async with aclosing(stream) as messages:
        missed = await anext(messages)
    assert {topic.topic_id for topic in missed.delta.topics} == {topic.topic_id for topic in made}
    assert missed.version == seen + 2


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


UNREPLICATED = "brokers do not replicate yet"


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


async def test_producer_ids_are_never_given_twice(cluster_stub: Stub) -> None:
    request = pb.AllocateProducerIdsRequest(broker_id=1, count=10)
    blocks = [await call_unary(cluster_stub.AllocateProducerIds, request) for _ in range(3)]
    ids = [first.first_producer_id + n for first in blocks for n in range(first.count)]
    assert len(set(ids)) == 30
    with pytest.raises(InvalidRequestError):
        await call_unary(
            cluster_stub.AllocateProducerIds, pb.AllocateProducerIdsRequest(count=10_001)
        )


async def test_offsets_of_a_group_are_stored_read_and_deleted(cluster_stub: Stub) -> None:
    offset = pb.GroupOffset(
        topic="t", partition=1, offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=9
    )
    commit = pb.CommitOffsetsRequest(group_id="g", offsets=[offset])
    await call_unary(cluster_stub.CommitOffsets, commit)
    await call_unary(cluster_stub.CommitOffsets, commit)
    asked = pb.FetchOffsetsRequest(
        group_id="g",
        partitions=[pb.TopicPartition(topic="t", partition=number) for number in (0, 1)],
    )
    assert list((await call_unary(cluster_stub.FetchOffsets, asked)).offsets) == [offset]
    assert list((await call_unary(cluster_stub.ListGroups, pb.ListGroupsRequest())).group_ids) == [
        "g"
    ]
    delete = pb.DeleteOffsetsRequest(group_id="g")
    await call_unary(cluster_stub.DeleteOffsets, delete)
    await call_unary(cluster_stub.DeleteOffsets, delete)
    assert not (await call_unary(cluster_stub.FetchOffsets, asked)).offsets


async def test_transaction_states_compare_their_version(cluster_stub: Stub) -> None:
    state = pb.TransactionState(
        transactional_id="t",
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        state="Ongoing",
        partitions=[pb.TopicPartition(topic="orders", partition=3)],
        start_timestamp_ms=5,
    )

    async def put(version: int) -> int:
        state.version = version
        request = pb.PutTransactionStateRequest(state=state)
        answer: pb.PutTransactionStateResponse = await call_unary(
            cluster_stub.PutTransactionState, request
        )
        return answer.version

    asked = pb.GetTransactionStateRequest(transactional_id="t")
    assert not (await call_unary(cluster_stub.GetTransactionState, asked)).HasField("state")
    assert await put(0) == 1
    assert await put(1) == 2
    for version in (0, 1, 5):
        with pytest.raises(ConcurrentUpdateError):
            await put(version)
    state.version = 2
    assert (await call_unary(cluster_stub.GetTransactionState, asked)).state == state
