"""PostgreSQL fails under the service, and several replicas stand on one database (T37, T38)."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import builders
import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer.metadata.v1.cluster_metadata_service_pb2_grpc import (
    ClusterMetadataServiceStub,
)
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.app import running_server
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcClientSettings
from aquifer_standalone.ports import hold_port
from aquifer_standalone.postgres import EmbeddedPostgres
from contract.remote_log_metadata.steps import brought_to, changes, found
from fixtures.metadata_service import metadata_settings
from fixtures.network import TcpProxy
from fixtures.polling import eventually
from fixtures.supervised import running

Stub = Any

ONE_ATTEMPT = GrpcClientSettings(max_attempts=1, private_connection=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A service, and both its APIs through gRPC without retries."""

    server: GrpcServer
    cluster: Stub
    rlmm: GrpcRemoteLogMetadataManager


@asynccontextmanager
async def replica(dsn: str, *, broker_lease_ms: int = 9_000) -> AsyncIterator[Replica]:
    async with AsyncExitStack() as stack:
        settings = metadata_settings(dsn, broker_lease_ms=broker_lease_ms)
        server = await stack.enter_async_context(running_server(settings))
        address = f"127.0.0.1:{server.port}"
        channel = await stack.enter_async_context(connect(address, settings=ONE_ATTEMPT))
        rlmm = GrpcRemoteLogMetadataManager()
        await rlmm.configure({"endpoints": address, "max.attempts": "1"})
        stack.push_async_callback(rlmm.close)
        yield Replica(server=server, cluster=ClusterMetadataServiceStub(channel), rlmm=rlmm)


def through(proxy: TcpProxy, dsn: str) -> str:
    """The same database behind a proxy."""
    parts = urlsplit(dsn)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{proxy.address}").geturl()


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[TcpProxy]:
    parts = urlsplit(dsn)
    assert parts.port is not None
    async with TcpProxy(parts.port, parts.hostname or "127.0.0.1") as proxy:
        yield proxy


async def register(cluster: Stub, broker_id: int) -> int:
    broker = pb.Broker(broker_id=broker_id, incarnation=str(KafkaUuid.random()))
    request = pb.RegisterBrokerRequest(broker=broker)
    answer: pb.RegisterBrokerResponse = await call_unary(cluster.RegisterBroker, request)
    return answer.broker_epoch


async def create(cluster: Stub, name: str) -> pb.TopicResult:
    topic = pb.NewTopic(name=name, num_partitions=1, replication_factor=1)
    request = pb.CreateTopicsRequest(topics=[topic])
    answer: pb.CreateTopicsResponse = await call_unary(cluster.CreateTopics, request)
    return answer.results[0]


async def until_it_answers(question: Callable[[], Awaitable[object]]) -> None:
    async def answered() -> bool:
        await question()
        return True

    await eventually(answered, timeout_s=60)


async def test_cut_connections_are_replaced_without_anybody_noticing(metadata_dsn: str) -> None:
    partition = builders.topic_id_partition()
    async with proxied(metadata_dsn) as proxy, replica(through(proxy, metadata_dsn)) as one:
        for round_ in range(5):
            segment = builders.remote_segment(partition, round_ * 10, round_ * 10 + 9)
            await brought_to(one.rlmm, segment)
            await proxy.cut()
            assert await found(one.rlmm, partition, 0, round_ * 10) == segment.segment_id
            await proxy.cut()
            await register(one.cluster, 1)


async def test_an_unreachable_database_is_unavailable_with_a_delay_and_comes_back(
    metadata_dsn: str,
) -> None:
    partition = builders.topic_id_partition()
    async with proxied(metadata_dsn) as proxy, replica(through(proxy, metadata_dsn)) as one:
        segment = await brought_to(one.rlmm, builders.remote_segment(partition, 0, 9))
        assert one.server.ready
        await proxy.refuse()
        with pytest.raises(RemoteStorageUnavailableError) as refused:
            await found(one.rlmm, partition, 0, 5)
        assert refused.value.reason is ErrorReason.DATABASE_UNAVAILABLE
        assert refused.value.retry_after_ms == 500
        with pytest.raises(RemoteStorageUnavailableError):
            await create(one.cluster, "orders")
        await eventually(lambda: not one.server.ready)
        proxy.resume()
        await eventually(lambda: one.server.ready)
        assert await found(one.rlmm, partition, 0, 5) == segment.segment_id
        assert (await create(one.cluster, "x")).error_reason == "INVALID_REPLICATION_FACTOR"


async def test_a_database_that_falls_silent_costs_callers_no_more_than_their_deadline(
    metadata_dsn: str,
) -> None:
    async with proxied(metadata_dsn) as proxy, replica(through(proxy, metadata_dsn)) as one:
        await register(one.cluster, 1)
        proxy.pause()
        async with asyncio.timeout(60):
            for _ in range(20):
                with pytest.raises((DeadlineExceededError, RemoteStorageUnavailableError)):
                    await call_unary(one.cluster.ListGroups, pb.ListGroupsRequest(), deadline_s=0.3)
        await eventually(lambda: not one.server.ready)
        proxy.resume()
        await eventually(lambda: one.server.ready, timeout_s=60)
        await until_it_answers(
            lambda: call_unary(one.cluster.ListGroups, pb.ListGroupsRequest(), deadline_s=5)
        )


async def test_brokers_keep_their_leadership_through_an_outage_longer_than_their_lease(
    metadata_dsn: str,
) -> None:
    async with (
        proxied(metadata_dsn) as proxy,
        replica(through(proxy, metadata_dsn), broker_lease_ms=1_000) as one,
    ):
        epoch = await register(one.cluster, 1)
        made = await create(one.cluster, "orders")
        beat = pb.HeartbeatRequest(broker_id=1, broker_epoch=epoch)
        await proxy.refuse()
        begun = time.monotonic()

        async def failed() -> bool:
            with pytest.raises(RemoteStorageUnavailableError):
                await call_unary(one.cluster.Heartbeat, beat)
            return time.monotonic() - begun > 1.5

        await eventually(failed)
        proxy.resume()
        await until_it_answers(lambda: call_unary(one.cluster.Heartbeat, beat))
        [partition] = (await latest(one.cluster)).snapshot.topics[0].partitions
        assert (partition.leader, partition.leader_epoch) == (1, 0)
        assert made.topic.partitions[0] == partition


async def latest(cluster: Stub) -> pb.WatchClusterMetadataResponse:
    request = pb.WatchClusterMetadataRequest()
    stream = call_stream(cluster.WatchClusterMetadata, request, deadline_s=60)
    async with aclosing(stream) as messages:
        first: pb.WatchClusterMetadataResponse = await anext(messages)
        return first


async def test_a_restarted_database_is_ridden_out(tmp_path: Path) -> None:
    """PostgreSQL dies at once, and is started again by its own supervisor."""
    partition = builders.topic_id_partition()
    postgres = EmbeddedPostgres(tmp_path, hold_port(), fsync=False)
    with running(postgres.spec(), tmp_path):
        async with replica(postgres.dsn) as one:
            segment = await brought_to(one.rlmm, builders.remote_segment(partition, 0, 9))
            watching = asyncio.create_task(changes(one.rlmm, partition, 0, 2))
            os.kill(postmaster(tmp_path), signal.SIGQUIT)
            await until_it_answers(
                lambda: brought_to(one.rlmm, builders.remote_segment(partition, 10, 19))
            )
            assert await found(one.rlmm, partition, 0, 5) == segment.segment_id
            assert await found(one.rlmm, partition, 0, 15) is not None
            watching.cancel()
            await asyncio.wait([watching])
            assert len(await changes(one.rlmm, partition, 0, 2)) == 2


def postmaster(data_dir: Path) -> int:
    [file] = data_dir.rglob("postmaster.pid")
    return int(file.read_text().splitlines()[0])


async def test_replicas_agree_on_everything_at_once(metadata_dsn: str) -> None:
    partition = builders.topic_id_partition()
    async with replica(metadata_dsn) as one, replica(metadata_dsn) as two:
        segment = builders.remote_segment(partition, 0, 9)
        await one.rlmm.add_remote_log_segment_metadata(segment, leader_epoch=3)
        await two.rlmm.on_partition_leadership_changes({partition: 4}, [])
        with pytest.raises(StaleLeaderEpochError):
            await one.rlmm.add_remote_log_segment_metadata(segment, leader_epoch=3)
        other = await brought_to(two.rlmm, builders.remote_segment(partition, 0, 9))
        assert await found(one.rlmm, partition, 0, 5) == other.segment_id
        first, second = await latest(one.cluster), await latest(two.cluster)
        assert first == second


async def test_replicas_that_create_at_the_same_time_create_once(metadata_dsn: str) -> None:
    async with replica(metadata_dsn) as one, replica(metadata_dsn) as two:
        await register(one.cluster, 1)
        stream = call_stream(
            two.cluster.WatchClusterMetadata, pb.WatchClusterMetadataRequest(), deadline_s=60
        )
        async with aclosing(stream) as messages:
            version = (await anext(messages)).version
            names = [f"topic-{number}" for number in range(10)]
            results = await asyncio.gather(
                *(create(either.cluster, name) for name in names for either in (one, two))
            )
            reasons = [result.error_reason for result in results]
            assert sorted(reasons) == [""] * 10 + ["TOPIC_ALREADY_EXISTS"] * 10
            seen: dict[str, str] = {}
            async for message in messages:
                assert message.version >= version
                version = message.version
                seen |= {topic.name: topic.topic_id for topic in message.delta.topics}
                if len(seen) == len(names):
                    break
        made = {result.name: result.topic_id for result in results if not result.error_reason}
        assert seen == made


async def test_replicas_never_give_the_same_producer_id_twice(metadata_dsn: str) -> None:
    async with replica(metadata_dsn) as one, replica(metadata_dsn) as two:
        request = pb.AllocateProducerIdsRequest(broker_id=1, count=10)
        blocks = await asyncio.gather(
            *(
                call_unary(either.cluster.AllocateProducerIds, request)
                for _ in range(10)
                for either in (one, two)
            )
        )
        firsts = sorted(block.first_producer_id for block in blocks)
        assert all(later - earlier >= 10 for earlier, later in pairwise(firsts))


async def test_an_expired_lease_is_ended_once_however_many_replicas_look(
    metadata_dsn: str,
) -> None:
    async with (
        replica(metadata_dsn, broker_lease_ms=3_000) as one,
        replica(metadata_dsn, broker_lease_ms=3_000) as two,
    ):
        await register(one.cluster, 1)
        await create(two.cluster, "orders")

        async def leaderless() -> bool:
            [partition] = (await latest(two.cluster)).snapshot.topics[0].partitions
            return partition.leader == -1

        await eventually(leaderless)
        version = (await latest(one.cluster)).version
        [partition] = (await latest(one.cluster)).snapshot.topics[0].partitions
        assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
        assert version == 4, "initialized, registered, created, expired"
