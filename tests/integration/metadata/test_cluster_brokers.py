"""ClusterMetadataService through gRPC, on a real PostgreSQL: leases of brokers, and the leadership that goes with them."""

import psycopg
import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import ClusterMetadataServiceStub
from aquifer_core.errors import (
    PreconditionError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from fixtures.cluster_calls import Stub, create, partition_of, register
from fixtures.metadata_service import metadata_settings
from fixtures.polling import eventually


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


async def test_a_dead_broker_is_noticed_though_the_clock_of_the_database_was_set_back(
    metadata_dsn: str,
) -> None:
    """Its lease ends in an hour by that clock; nobody renews it. Those who do stay alive."""
    settings = metadata_settings(metadata_dsn, broker_lease_ms=3_000)
    async with running_server(settings) as server, connect(f"127.0.0.1:{server.port}") as channel:
        stub = ClusterMetadataServiceStub(channel)
        await register(stub, 1)
        await create(stub, "orders")
        async with await psycopg.AsyncConnection.connect(metadata_dsn) as connection:
            await connection.execute(
                "UPDATE broker SET lease_expires_at = lease_expires_at + interval '1 hour'"
            )

        async def leaderless() -> bool:
            return (await partition_of(stub, "orders")).leader == -1

        await eventually(leaderless)


@pytest.mark.parametrize("broker_id", [0, 1])
async def test_an_expired_lease_costs_the_leadership_and_a_heartbeat_says_so(
    metadata_dsn: str, broker_id: int
) -> None:
    """Kafka's brokers may be counted from 0."""
    settings = metadata_settings(metadata_dsn, broker_lease_ms=3_000)
    async with running_server(settings) as server, connect(f"127.0.0.1:{server.port}") as channel:
        stub = ClusterMetadataServiceStub(channel)
        lease = await register(stub, broker_id)
        await create(stub, "orders")
        beat = pb.HeartbeatRequest(broker_id=broker_id, broker_epoch=lease.broker_epoch)
        assert (await call_unary(stub.Heartbeat, beat)).lease_ms == 3_000

        async def leaderless() -> bool:
            return (await partition_of(stub, "orders")).leader == -1

        await eventually(leaderless)
        with pytest.raises(RemoteResourceNotFoundError) as refused:
            await call_unary(stub.Heartbeat, beat)
        assert refused.value.reason == "BROKER_NOT_FOUND"
