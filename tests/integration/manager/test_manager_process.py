"""The manager as a process: its life, its traces and its metrics."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from aquifer.broker.v1 import broker_log_service_pb2_grpc as broker_grpc
from aquifer.common.v1 import partition_pb2 as common
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer_core.errors import RemoteStorageUnavailableError, UnavailableError
from aquifer_rpc import convert
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcClientSettings, GrpcServerSettings
from fixtures.manager_service import INCARNATION, BrokerLogServicer
from fixtures.manager_world import SimulatedBroker, SimulatedLog, partition
from fixtures.metadata_process import free_addresses
from fixtures.otlp import OtlpCollector
from fixtures.polling import eventually

TIP = partition()
FAKES = "aquifer_core.fakes"


@asynccontextmanager
async def manager_process(
    data_dir: Path, **variables: str
) -> AsyncIterator[tuple[Process, Channel]]:
    """A manager process that answers, and a channel to it."""
    (address,) = free_addresses(1)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("AQUIFER_")
    }
    environment |= {
        "AQUIFER_MANAGER_GRPC__LISTEN": address,
        "AQUIFER_MANAGER_DATA_DIR": str(data_dir),
        **{f"AQUIFER_MANAGER_{name}": value for name, value in variables.items()},
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aquifer_manager", env=environment, stderr=PIPE
    )
    settings = GrpcClientSettings(max_attempts=1, deadline_s=60, private_connection=True)
    try:
        async with connect(address, settings=settings) as channel:
            async with asyncio.timeout(60):
                await channel.channel_ready()
            yield process, channel
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_serves_while_metadata_and_storage_are_down_and_stops_cleanly(
    tmp_path: Path,
) -> None:
    """SR-36: announcements are taken, reads answered with what is down."""
    storage, metadata = free_addresses(2)
    nowhere = {"STORAGE__ENDPOINTS": storage, "METADATA__ENDPOINTS": metadata}
    async with manager_process(tmp_path, **nowhere) as (process, channel):
        stub = RemoteLogManagerServiceStub(channel)
        await stub.RegisterBroker(
            pb.RegisterBrokerRequest(
                broker_id=1, incarnation=INCARNATION, broker_log_address="127.0.0.1:1"
            )
        )
        await announce(stub)
        error: Exception | None = None
        try:
            await stub.PlanFetch(
                pb.PlanFetchRequest(topic_id_partition=convert.tip_to_pb(TIP), max_bytes=1),
                timeout=30,
            )
        except (UnavailableError, RemoteStorageUnavailableError) as raised:
            error = raised
        assert error is not None
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0


async def announce(stub: Any) -> None:
    config = common.TopicConfig(remote_storage_enable=True, retention_ms=-1, retention_bytes=-1)
    role = pb.LeaderPartition(topic_id_partition=convert.tip_to_pb(TIP), config=config)
    await stub.OnLeadershipChange(
        pb.OnLeadershipChangeRequest(broker_id=1, incarnation=INCARNATION, leaders=[role])
    )


async def test_a_copy_is_one_trace_and_the_metrics_tell_of_it(
    tmp_path: Path, otlp_collector: OtlpCollector
) -> None:
    """The run is the root; the broker's part of the copy lies below it. Descriptions of logs serve many runs and are on their own."""
    broker = SimulatedBroker()
    log = broker.add(SimulatedLog(TIP))
    log.roll(1)
    server = GrpcServer(GrpcServerSettings(drain_grace_s=0.1), name="broker")
    server.add(
        broker_grpc.add_BrokerLogServiceServicer_to_server, cast(Any, BrokerLogServicer(broker))
    )
    variables = {
        "STORAGE__CLASS_NAME": f"{FAKES}.remote_storage.InMemoryRemoteStorageManager",
        "METADATA__CLASS_NAME": f"{FAKES}.remote_log_metadata.InMemoryRemoteLogMetadataManager",
        "TELEMETRY__OTLP_ENDPOINT": otlp_collector.endpoint,
        "TELEMETRY__METRICS_INTERVAL_S": "0.3",
        "OBSERVE_INTERVAL_MS": "100",
    }
    async with server, manager_process(tmp_path, **variables) as (_, channel):
        stub = RemoteLogManagerServiceStub(channel)
        await stub.RegisterBroker(
            pb.RegisterBrokerRequest(
                broker_id=1, incarnation=INCARNATION, broker_log_address=f"127.0.0.1:{server.port}"
            )
        )
        await announce(stub)
        await eventually(lambda: log.highest_remote_offset == 99)
        tree = await otlp_collector.wait_for_tree(
            lambda root: (
                root.span.name == "copy"
                and any(node.span.name == "copy segment" for node in root.children)
            )
        )
        (segment,) = [node for node in tree.children if node.span.name == "copy segment"]
        assert segment.span.attributes["aquifer.start_offset"] == 0
        assert segment.span.attributes["aquifer.topic"] == TIP.topic
        called = [node.span.name for node in segment.children]
        assert called == [
            "aquifer.broker.v1.BrokerLogService/CopySegment",
            "aquifer.broker.v1.BrokerLogService/UpdateRemoteLogOffsets",
        ]

        def measured(name: str) -> list[float]:
            return [point.value for point in otlp_collector.points if point.name == name]

        await eventually(lambda: 1024 in measured("aquifer.remote.copy.bytes"))
        await eventually(lambda: 0 in measured("aquifer.remote.copy.lag.segments"))
        await eventually(lambda: len(measured("aquifer.task.since_success")) >= 2)
        await eventually(lambda: 0 in measured("aquifer.remote.reader.pending"))
