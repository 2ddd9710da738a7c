"""What a manager costs that has many partitions and nothing to do."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import psutil
from aquifer.broker.v1 import broker_log_service_pb2_grpc as broker_grpc
from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_rpc import convert
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_standalone.stack import Stack
from fixtures.manager_service import BrokerLogServicer
from fixtures.manager_world import SimulatedBroker, SimulatedLog

if TYPE_CHECKING:
    from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import (
        RemoteLogManagerServiceAsyncStub,
    )

MIB = 1024 * 1024
_BROKER = 1000
_INCARNATION = str(KafkaUuid.random())
_PER_ANNOUNCEMENT = 1000
_HEARTBEAT_S = 5.0
_SETTLED_S = 300.0
_CALL_S = 60.0
_POLL_S = 4.0
"""Each look lists every partition."""
_TOPIC = "idle"


class _CountedBroker(BrokerLogServicer):
    """Serves empty logs and counts how often it is asked."""

    describes = 0

    async def DescribeLogs(self, request: Any, context: Any) -> Any:
        self.describes += 1
        return await super().DescribeLogs(request, context)


async def measure_idle(suite: Stack, *, partitions: int, seconds: float) -> Mapping[str, float]:
    """Announces partitions of a broker that has nothing in them, lets their first runs pass, and watches.

    Cores are processor seconds a second, of the manager and of the metadata service that it asks.
    """
    manager, metadata = (
        psutil.Process(suite.supervisor.child(name).pid) for name in ("manager", "metadata")
    )
    before_bytes = manager.memory_info().rss
    async with _broker(partitions) as (servicer, port, tips):
        started, first_cpu = time.perf_counter(), _cpu_s(manager) + _cpu_s(metadata)
        async with _announced(suite, port, tips):
            await _first_runs(suite, partitions)
            first_s = time.perf_counter() - started
            first_cpu = _cpu_s(manager) + _cpu_s(metadata) - first_cpu
            begun = servicer.describes, _cpu_s(manager), _cpu_s(metadata)
            await asyncio.sleep(seconds)
            ended = servicer.describes, _cpu_s(manager), _cpu_s(metadata)
        asked, manager_cpu, metadata_cpu = (
            (after - before) / seconds for before, after in zip(begun, ended, strict=True)
        )
        after_bytes = manager.memory_info().rss
    name = f"{partitions // 1000}k" if partitions >= 1000 else str(partitions)
    return {
        f"idle_first_runs_s_{name}": first_s,
        f"idle_first_runs_cpu_s_{name}": first_cpu,
        f"idle_rss_mb_{name}": after_bytes / MIB,
        f"idle_rss_growth_mb_{name}": (after_bytes - before_bytes) / MIB,
        f"idle_cpu_{name}": manager_cpu,
        f"idle_metadata_cpu_{name}": metadata_cpu,
        f"idle_describes_per_s_{name}": asked,
    }


@asynccontextmanager
async def _broker(
    partitions: int,
) -> AsyncIterator[tuple[_CountedBroker, int, list[TopicIdPartition]]]:
    broker, topic_id = SimulatedBroker(), KafkaUuid.random()
    tips = [TopicIdPartition(topic_id, _TOPIC, number) for number in range(partitions)]
    for tip in tips:
        broker.add(SimulatedLog(tip))
    servicer = _CountedBroker(broker)
    server = GrpcServer(GrpcServerSettings(drain_grace_s=0.1), name="broker")
    server.add(broker_grpc.add_BrokerLogServiceServicer_to_server, cast(Any, servicer))
    async with server:
        yield servicer, server.port, tips


@asynccontextmanager
async def _announced(suite: Stack, port: int, tips: list[TopicIdPartition]) -> AsyncIterator[None]:
    """The broker leads the partitions while the block runs."""
    async with connect([suite.address("manager")]) as channel:
        stub = RemoteLogManagerServiceStub(channel)
        await call_unary(
            stub.RegisterBroker,
            pb.RegisterBrokerRequest(
                broker_id=_BROKER,
                incarnation=_INCARNATION,
                broker_log_address=f"127.0.0.1:{port}",
            ),
            deadline_s=_CALL_S,
        )
        config = partition_pb2.TopicConfig(
            remote_storage_enable=True, retention_ms=-1, retention_bytes=-1
        )
        for start in range(0, len(tips), _PER_ANNOUNCEMENT):
            leaders = [
                pb.LeaderPartition(
                    topic_id_partition=convert.tip_to_pb(tip), leader_epoch=0, config=config
                )
                for tip in tips[start : start + _PER_ANNOUNCEMENT]
            ]
            await call_unary(
                stub.OnLeadershipChange,
                pb.OnLeadershipChangeRequest(
                    broker_id=_BROKER, incarnation=_INCARNATION, leaders=leaders
                ),
                deadline_s=_CALL_S,
            )
        beats = asyncio.create_task(_heartbeats(stub))
        try:
            yield
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)


async def _heartbeats(stub: "RemoteLogManagerServiceAsyncStub") -> None:
    request = pb.HeartbeatRequest(broker_id=_BROKER, incarnation=_INCARNATION)
    while True:
        await call_unary(stub.Heartbeat, request, deadline_s=_CALL_S)
        await asyncio.sleep(_HEARTBEAT_S)


async def _first_runs(suite: Stack, partitions: int) -> None:
    """Waits until every partition was copied and expired once.

    Raises:
        TimeoutError: they were not; says how many were.
    """
    done: list[bool] = []
    try:
        async with connect([suite.address("manager")]) as channel, asyncio.timeout(_SETTLED_S):
            stub = RemoteLogManagerServiceStub(channel)
            while len(done) < partitions or not all(done):
                await asyncio.sleep(_POLL_S)
                done = await _done(stub)
    except TimeoutError:
        raise TimeoutError(f"{sum(done)} of {partitions} had their first runs") from None


async def _done(stub: "RemoteLogManagerServiceAsyncStub") -> list[bool]:
    """For each partition whether all its tasks have run."""
    request = pb.ListPartitionsRequest(topic=_TOPIC)
    return [
        all(
            task.runs and not task.running and not task.consecutive_failures for task in state.tasks
        )
        async for page in call_stream(stub.ListPartitions, request, deadline_s=_CALL_S)
        for state in page.partitions
    ]


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
