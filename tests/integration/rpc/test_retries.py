import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    ErrorReason,
    QuotaExceededError,
    RemoteStorageUnavailableError,
    UnavailableError,
)
from aquifer_rpc.calls import call_stream, call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcClientSettings, GrpcServerSettings
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, collect, serving, talking

REQUEST = pb.DescribeSegmentRequest()


def failing(*errors: AquiferError) -> ScriptedStorage:
    """Fails once with each error, then succeeds."""
    left = list(errors)

    async def describe(request: Any, context: Any) -> Any:
        if left:
            raise left.pop(0)
        return pb.DescribeSegmentResponse()

    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        if left:
            raise left.pop(0)
        yield pb.FetchLogSegmentResponse(position=7)

    return ScriptedStorage(describe=describe, fetch=fetch)


async def test_unavailable_is_repeated_until_it_succeeds(
    quick_retries: GrpcClientSettings,
) -> None:
    servicer = failing(UnavailableError("not yet"), UnavailableError("not yet"))
    async with talking(servicer, client=quick_retries) as (stub, _):
        await call_unary(stub.DescribeSegment, REQUEST)

    assert servicer.calls == 3


async def test_a_stream_is_repeated_before_its_first_message(
    quick_retries: GrpcClientSettings,
) -> None:
    servicer = failing(UnavailableError("not yet"))
    async with talking(servicer, client=quick_retries) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest())
        received = [piece.position async for piece in pieces]

    assert received == [7]
    assert servicer.calls == 2


async def test_a_stream_is_never_repeated_after_its_first_message(
    quick_retries: GrpcClientSettings,
) -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield pb.FetchLogSegmentResponse(position=1)
        raise UnavailableError("gone")

    servicer = ScriptedStorage(fetch=fetch)
    received: list[pb.FetchLogSegmentResponse] = []
    async with talking(servicer, client=quick_retries) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest())
        with pytest.raises(UnavailableError):
            await collect(pieces, received)

    assert [piece.position for piece in received] == [1]
    assert servicer.calls == 1


async def test_a_spent_quota_is_repeated_when_the_server_said_so_and_not_earlier(
    quick_retries: GrpcClientSettings,
) -> None:
    servicer = failing(QuotaExceededError("slow down", retry_after_ms=300))
    started_s = time.monotonic()
    async with talking(servicer, client=quick_retries) as (stub, _):
        await call_unary(stub.DescribeSegment, REQUEST)

    assert servicer.calls == 2
    assert time.monotonic() - started_s >= 0.3


async def test_a_spent_quota_without_a_time_is_not_repeated(
    quick_retries: GrpcClientSettings,
) -> None:
    servicer = failing(QuotaExceededError("never"))
    async with talking(servicer, client=quick_retries) as (stub, _):
        with pytest.raises(QuotaExceededError):
            await call_unary(stub.DescribeSegment, REQUEST)

    assert servicer.calls == 1


@pytest.mark.parametrize(
    "error", [ConcurrentUpdateError("read again"), AquiferError("no")], ids=["aborted", "internal"]
)
async def test_other_errors_are_not_repeated(
    error: AquiferError, quick_retries: GrpcClientSettings
) -> None:
    servicer = failing(error)
    async with talking(servicer, client=quick_retries) as (stub, _):
        with pytest.raises(type(error)):
            await call_unary(stub.DescribeSegment, REQUEST)

    assert servicer.calls == 1


async def test_retries_can_be_turned_off_for_a_call(quick_retries: GrpcClientSettings) -> None:
    servicer = failing(UnavailableError("not yet"))
    async with talking(servicer, client=quick_retries) as (stub, _):
        with pytest.raises(UnavailableError):
            await call_unary(stub.DescribeSegment, REQUEST, retry=False)

    assert servicer.calls == 1


async def test_attempts_are_counted(quick_retries: GrpcClientSettings) -> None:
    servicer = failing(*[UnavailableError("never")] * 10)
    async with talking(servicer, client=quick_retries) as (stub, _):
        with pytest.raises(UnavailableError):
            await call_unary(stub.DescribeSegment, REQUEST)

    assert servicer.calls == quick_retries.max_attempts


async def test_a_retry_that_would_come_too_late_is_not_waited_for(
    quick_retries: GrpcClientSettings,
) -> None:
    servicer = failing(QuotaExceededError("slow down", retry_after_ms=60_000))
    started_s = time.monotonic()
    async with talking(servicer, client=quick_retries) as (stub, _):
        with pytest.raises(QuotaExceededError) as raised:
            await call_unary(stub.DescribeSegment, REQUEST, deadline_s=30)

    assert raised.value.retry_after_ms == 60_000
    assert time.monotonic() - started_s < 30


async def test_a_call_goes_to_the_replica_that_is_alive(
    quick_retries: GrpcClientSettings,
) -> None:
    async with (
        serving(failing()) as alive,
        connect(["127.0.0.1:1", f"127.0.0.1:{alive.port}"], settings=quick_retries) as channel,
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        for key in range(8):
            await call_unary(stub.DescribeSegment, REQUEST, affinity=str(key).encode())


async def test_calls_of_one_key_go_to_one_replica_and_keys_are_spread() -> None:
    servicers = [failing(), failing()]
    async with (
        serving(servicers[0]) as first,
        serving(servicers[1]) as second,
        connect(f"127.0.0.1:{first.port},127.0.0.1:{second.port}") as channel,
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        for _ in range(5):
            await call_unary(stub.DescribeSegment, REQUEST, affinity=b"one key")
        assert sorted(servicer.calls for servicer in servicers) == [0, 5]
        for key in range(40):
            await call_unary(stub.DescribeSegment, REQUEST, affinity=str(key).encode())

    assert min(servicer.calls for servicer in servicers) > 5


async def test_calls_without_a_key_go_round() -> None:
    servicers = [failing(), failing()]
    async with (
        serving(servicers[0]) as first,
        serving(servicers[1]) as second,
        connect([f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"]) as channel,
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        for _ in range(6):
            await call_unary(stub.DescribeSegment, REQUEST)

    assert [servicer.calls for servicer in servicers] == [3, 3]


async def test_a_channel_closed_under_a_call_is_unavailable_and_no_cancellation() -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield pb.FetchLogSegmentResponse(position=1)
        await asyncio.Event().wait()

    async with talking(ScriptedStorage(fetch=fetch)) as (stub, channel):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest())
        async with aclosing(pieces):
            await anext(pieces)
            waiting = asyncio.create_task(anext(pieces))
            await asyncio.wait([waiting], timeout=0.05)
            await channel.close()
            with pytest.raises(RemoteStorageUnavailableError) as raised:
                await waiting

    assert raised.value.reason is ErrorReason.PEER_UNAVAILABLE


async def test_cancelling_the_caller_cancels_the_call_and_nothing_else() -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def describe(request: Any, context: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with talking(ScriptedStorage(describe=describe)) as (stub, _):
        task = asyncio.create_task(call_unary(stub.DescribeSegment, REQUEST))
        async with asyncio.timeout(60):
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await cancelled.wait()


async def test_calls_on_a_closed_channel_are_unavailable() -> None:
    async with talking(failing()) as (stub, channel):
        await channel.close()
        with pytest.raises(RemoteStorageUnavailableError):
            await call_unary(stub.DescribeSegment, REQUEST, retry=False)
        with pytest.raises(RemoteStorageUnavailableError):
            await anext(call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest(), retry=False))


async def test_a_service_that_comes_back_is_found_again(
    quick_retries: GrpcClientSettings,
) -> None:
    async with serving(failing()) as first:
        port = first.port
        channel = connect(f"127.0.0.1:{port}", settings=quick_retries)
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        await call_unary(stub.DescribeSegment, REQUEST)
    async with channel:
        with pytest.raises(RemoteStorageUnavailableError):
            await call_unary(stub.DescribeSegment, REQUEST)
        settings = GrpcServerSettings(listen=f"127.0.0.1:{port}")
        async with serving(failing(), settings=settings):

            async def answered() -> bool:
                await call_unary(stub.DescribeSegment, REQUEST, retry=False)
                return True

            assert await eventually(answered)


async def test_a_call_that_may_be_made_once_waits_for_a_server_that_comes_back() -> None:
    """The channel pauses after each failed attempt to connect, and fails calls meanwhile without having sent them."""
    servicer = failing()
    settings = GrpcClientSettings(
        deadline_s=30.0, reconnect_backoff_min_s=1.0, reconnect_backoff_max_s=1.0
    )
    async with serving(servicer) as server:
        address = f"127.0.0.1:{server.port}"
        async with connect(address, settings=settings) as channel:
            stub = pb_grpc.RemoteStorageServiceStub(channel)
            await call_unary(stub.DescribeSegment, REQUEST, retry=False)
            await server.stop()
            with pytest.raises(UnavailableError):
                await call_unary(stub.DescribeSegment, REQUEST, retry=False)
            async with serving(servicer, settings=GrpcServerSettings(listen=address)):
                await channel.until_connected()
                await call_unary(stub.DescribeSegment, REQUEST, retry=False)
    assert servicer.calls == 2


async def test_the_wait_for_a_connection_ends_without_one() -> None:
    async with serving(failing()) as server:
        address = f"127.0.0.1:{server.port}"
    async with connect(address) as channel:
        async with asyncio.timeout(60):
            await channel.until_connected()
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        with pytest.raises(UnavailableError):
            await call_unary(stub.DescribeSegment, REQUEST, retry=False)
