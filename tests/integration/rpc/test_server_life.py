import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    InvalidConfigurationError,
    UnavailableError,
)
from aquifer_rpc.calls import FOREVER, call_stream, call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from fixtures.polling import eventually
from fixtures.scripted_storage import SERVICE, ScriptedStorage, serving
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _status(port: int, service: str = "") -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
        return int(answer.status)


async def test_a_server_is_ready_only_while_every_dependency_answers() -> None:
    up = {"store": True, "database": False}

    def probe(name: str) -> Any:
        async def ask() -> None:
            if not up[name]:
                raise ConnectionError(name)

        return ask

    settings = GrpcServerSettings(probe_interval_s=0.02)
    probes = {name: probe(name) for name in up}
    async with serving(ScriptedStorage(), settings=settings, probes=probes) as server:
        assert await _status(server.port) == NOT_SERVING
        assert await _status(server.port, SERVICE) == NOT_SERVING
        up["database"] = True
        await eventually(lambda: server.ready)
        assert await _status(server.port) == SERVING
        assert await _status(server.port, SERVICE) == SERVING
        up["store"] = False
        await eventually(lambda: not server.ready)
        assert await _status(server.port, SERVICE) == NOT_SERVING


async def test_a_probe_that_hangs_counts_as_failed() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    settings = GrpcServerSettings(probe_interval_s=0.02, probe_deadline_s=0.05)
    async with serving(ScriptedStorage(), settings=settings, probes={"x": hang}) as server:
        assert await _status(server.port) == NOT_SERVING


async def test_health_is_watched_until_the_server_drains() -> None:
    async with (
        serving(ScriptedStorage()) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == SERVING
        stopping = asyncio.create_task(server.stop())
        assert (await watch.read()).status == NOT_SERVING
        async with asyncio.timeout(60):
            await stopping


async def test_services_are_listed_by_reflection() -> None:
    async with (
        serving(ScriptedStorage()) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(Any, channel))
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=60
        )
        answer = await call.read()
        call.cancel()

    names = {service.name for service in answer.list_services_response.service}
    assert SERVICE in names
    assert "grpc.health.v1.Health" in names


async def test_a_drain_waits_for_calls_and_refuses_new_ones() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def describe(request: Any, context: Any) -> Any:
        begun.set()
        await go_on.wait()
        return pb.DescribeSegmentResponse()

    async with (
        serving(
            ScriptedStorage(describe=describe), settings=GrpcServerSettings(drain_grace_s=60)
        ) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        asyncio.timeout(60),
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        request = pb.DescribeSegmentRequest()
        call = asyncio.create_task(call_unary(stub.DescribeSegment, request))
        await begun.wait()
        stopping = asyncio.create_task(server.stop())
        await eventually(lambda: not server.ready)
        await eventually(lambda: _is_refused(stub))
        assert not call.done()
        go_on.set()
        await call
        await stopping


async def _is_refused(stub: Any) -> bool:
    try:
        await call_unary(
            stub.GetCapabilities, pb.GetCapabilitiesRequest(), retry=False, deadline_s=5
        )
    except UnavailableError:
        return True
    return False


async def test_calls_longer_than_the_grace_are_cancelled() -> None:
    begun = asyncio.Event()

    async def describe(request: Any, context: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    settings = GrpcServerSettings(drain_grace_s=0.1)
    async with (
        serving(ScriptedStorage(describe=describe), settings=settings) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        asyncio.timeout(60),
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        request = pb.DescribeSegmentRequest()
        call = asyncio.create_task(call_unary(stub.DescribeSegment, request, retry=False))
        await begun.wait()
        await server.stop()
        with pytest.raises(UnavailableError):
            await call


async def test_watches_end_at_once_when_the_server_drains() -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield pb.FetchLogSegmentResponse(position=1)
        await asyncio.Event().wait()

    settings = GrpcServerSettings(drain_grace_s=30)
    async with (
        serving(ScriptedStorage(fetch=fetch), settings=settings, endless=True) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        asyncio.timeout(60),
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        watch = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), deadline_s=FOREVER)
        async with aclosing(watch):
            await anext(watch)
            stopping = asyncio.create_task(server.stop())
            with pytest.raises(UnavailableError) as raised:
                await anext(watch)
        await stopping

    assert raised.value.reason is ErrorReason.NOT_READY


async def test_a_drain_is_not_upset_by_a_watch_whose_own_deadline_has_just_passed() -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield pb.FetchLogSegmentResponse(position=1)
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            while not cleaned.is_set():
                with suppress(asyncio.CancelledError):
                    await cleaned.wait()

    async with (
        serving(ScriptedStorage(fetch=fetch), endless=True) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
        asyncio.timeout(60),
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        watch = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), deadline_s=0.5)
        async with aclosing(watch):
            with pytest.raises(DeadlineExceededError):
                async for _ in watch:
                    pass
        await cleaning.wait()
        stopping = asyncio.create_task(server.stop())
        await eventually(lambda: not server.ready)
        cleaned.set()
        await stopping


async def test_a_taken_address_is_a_refused_setting() -> None:
    async with serving(ScriptedStorage()) as server:
        second = GrpcServer(GrpcServerSettings(listen=f"127.0.0.1:{server.port}"), name="second")
        with pytest.raises(InvalidConfigurationError, match="cannot listen"):
            await second.__aenter__()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_process_and_exits_cleanly(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "serve.py"
    script.write_text(_SERVE)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        env={**os.environ, "AQUIFER_TEST_ECHO_GRPC__DRAIN_GRACE_S": "60"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
            async with connect(f"127.0.0.1:{port}") as channel:
                method: Any = channel.unary_unary("/test.Slow/Slow")
                call = asyncio.create_task(call_unary(method, b"x", deadline_s=60))
                assert await process.stdout.readline() == b"begun\n"
                process.send_signal(number)
                assert await call == b"done"
            _, log = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == 0
    assert b"server_stopped" in log


_SERVE = """
import asyncio, signal
import grpc
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.service import run_service
from aquifer_rpc.settings import ServiceSettings


async def slow(request, context):
    print("begun", flush=True)
    received = asyncio.Event()
    while server.ready:
        await asyncio.sleep(0.01)
    return b"done"


def add(_servicer, grpc_server):
    handlers = {"Slow": grpc.unary_unary_rpc_method_handler(slow)}
    grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Slow", handlers),))


async def main(settings):
    global server
    server = GrpcServer(settings.grpc, name="slow")
    server.add(add, None)
    async with server:
        print(server.port, flush=True)
        await server.run_until_signal()


run_service("aquifer-slow", ServiceSettings, "AQUIFER_TEST_ECHO_", main)
"""
