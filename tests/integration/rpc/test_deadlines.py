import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import DeadlineExceededError, ErrorReason, RemoteStorageUnavailableError
from aquifer_rpc.calls import FOREVER, call_stream, call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcServerSettings
from fixtures.scripted_storage import ScriptedStorage, collect, serving, talking


async def _never(request: Any, context: Any) -> Any:
    await asyncio.Event().wait()


async def _one_then_never(request: Any, context: Any) -> AsyncIterator[Any]:
    yield pb.FetchLogSegmentResponse(position=1)
    await asyncio.Event().wait()


async def test_the_server_says_what_it_was_doing_before_the_deadline_passes() -> None:
    # A quarter of a second to answer in: a busy machine needs more than the few milliseconds of a short deadline.
    settings = GrpcServerSettings(deadline_reserve_s=1.0)
    async with talking(ScriptedStorage(describe=_never), settings=settings) as (stub, _):
        with pytest.raises(DeadlineExceededError) as raised:
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), deadline_s=5.0)

    assert "RemoteStorageService/DescribeSegment" in raised.value.message
    assert "while in" in raised.value.message


async def test_a_stream_that_stalls_says_what_it_was_doing() -> None:
    received: list[pb.FetchLogSegmentResponse] = []
    settings = GrpcServerSettings(max_rpc_s=2.0)
    async with talking(ScriptedStorage(fetch=_one_then_never), settings=settings) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), deadline_s=FOREVER)
        with pytest.raises(DeadlineExceededError, match="while in"):
            await collect(pieces, received)

    assert [piece.position for piece in received] == [1]


async def test_a_consumer_that_stalls_does_not_hold_the_server_past_the_deadline() -> None:
    ended = asyncio.Event()

    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield pb.FetchLogSegmentResponse(data=b"x" * 1_000_000)
        finally:
            ended.set()

    settings = GrpcServerSettings(max_rpc_s=2.0, drain_grace_s=0)
    async with (
        serving(ScriptedStorage(fetch=fetch), settings=settings) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as raw,
    ):
        call = pb_grpc.RemoteStorageServiceStub(raw).FetchLogSegment(pb.FetchLogSegmentRequest())
        await call.read()
        async with asyncio.timeout(60):
            await ended.wait()
        call.cancel()


async def test_with_too_little_time_left_nothing_is_started() -> None:
    servicer = ScriptedStorage(describe=_never)
    settings = GrpcServerSettings(min_remaining_s=30)
    async with talking(servicer, settings=settings) as (stub, _):
        with pytest.raises(DeadlineExceededError, match="nothing was started"):
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), deadline_s=10)

    assert servicer.calls == 0


async def test_callers_without_a_deadline_get_the_servers() -> None:
    settings = GrpcServerSettings(max_rpc_s=0.3)
    async with (
        serving(ScriptedStorage(describe=_never), settings=settings) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await pb_grpc.RemoteStorageServiceStub(raw).DescribeSegment(pb.DescribeSegmentRequest())

    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_declared_watches_outlive_the_servers_deadline() -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        for position in range(4):
            await asyncio.sleep(0.1)
            yield pb.FetchLogSegmentResponse(position=position)

    settings = GrpcServerSettings(max_rpc_s=0.2)
    async with talking(ScriptedStorage(fetch=fetch), settings=settings, endless=True) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), deadline_s=FOREVER)
        received = [piece.position async for piece in pieces]

    assert received == [0, 1, 2, 3]


async def test_a_peer_that_accepts_and_says_nothing_costs_the_deadline_and_no_more() -> None:
    # The kernel completes connections of a listening socket that nobody accepts from.
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    started_s = time.monotonic()
    with silent:
        async with connect(f"127.0.0.1:{port}") as channel:
            stub = pb_grpc.RemoteStorageServiceStub(channel)
            with pytest.raises((DeadlineExceededError, RemoteStorageUnavailableError)) as raised:
                await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), deadline_s=0.5)

    assert raised.value.reason in (ErrorReason.DEADLINE_EXCEEDED, ErrorReason.PEER_UNAVAILABLE)
    assert time.monotonic() - started_s < 30
