import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.errors import (
    AquiferError,
    CorruptSegmentError,
    ErrorReason,
    InternalError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_rpc.calls import call_stream, call_unary, call_upload
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcClientSettings, GrpcServerSettings
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, collect, talking

DAMAGED = CorruptSegmentError("chunk 3 is damaged", metadata={"chunk": "3", "position": "77"})


async def test_an_error_of_a_unary_call_arrives_as_it_was_raised() -> None:
    error = StaleLeaderEpochError("epoch 3 is over", metadata={"given": "3", "current": "5"})

    async def describe(request: Any, context: Any) -> Any:
        raise error

    async with talking(ScriptedStorage(describe=describe)) as (stub, _):
        with pytest.raises(StaleLeaderEpochError) as raised:
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest())

    assert raised.value == error


async def test_details_that_cannot_be_read_leave_the_error_that_the_code_says() -> None:
    """As another server or a proxy may send them; the tree of errors is what callers know to handle."""

    async def describe(request: Any, context: Any) -> Any:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, "later", (("grpc-status-details-bin", b"\xff\xff"),)
        )

    async with talking(ScriptedStorage(describe=describe)) as (stub, _):
        with pytest.raises(RemoteStorageUnavailableError, match="later") as raised:
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), retry=False)

    assert raised.value.reason is ErrorReason.PEER_UNAVAILABLE


async def test_an_error_after_the_third_message_of_a_stream_arrives_after_those_three() -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        for position in range(3):
            yield pb.FetchLogSegmentResponse(position=position)
        raise DAMAGED

    received: list[pb.FetchLogSegmentResponse] = []
    async with talking(ScriptedStorage(fetch=fetch)) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest())
        with pytest.raises(CorruptSegmentError) as raised:
            await collect(pieces, received)

    assert [piece.position for piece in received] == [0, 1, 2]
    assert raised.value == DAMAGED


async def test_an_upload_that_is_refused_ends_without_reading_the_rest() -> None:
    async def copy(requests: Any, context: Any) -> Any:
        async for _ in requests:
            raise OffsetOutOfRangeError("no")

    sent = 0

    async def endless() -> AsyncIterator[pb.CopyLogSegmentDataRequest]:
        nonlocal sent
        while True:
            sent += 1
            yield pb.CopyLogSegmentDataRequest(chunk=pb.CopyChunk(data=b"x" * 100_000))

    async with talking(ScriptedStorage(copy=copy)) as (stub, _):
        with pytest.raises(OffsetOutOfRangeError):
            await call_upload(stub.CopyLogSegmentData, endless())

    assert sent > 0


async def test_an_upload_may_be_answered_before_it_has_ended() -> None:
    async def copy(requests: Any, context: Any) -> Any:
        return pb.CopyLogSegmentDataResponse(stored_bytes=42)

    async def endless() -> AsyncIterator[pb.CopyLogSegmentDataRequest]:
        while True:
            yield pb.CopyLogSegmentDataRequest(chunk=pb.CopyChunk(data=b"x" * 100_000))

    async with talking(ScriptedStorage(copy=copy)) as (stub, _):
        answer = await call_upload(stub.CopyLogSegmentData, endless())

    assert answer.stored_bytes == 42


async def test_a_source_that_fails_cancels_its_upload_and_keeps_its_own_error() -> None:
    ended: list[str] = []

    async def copy(requests: Any, context: Any) -> Any:
        # gRPC may end the requests of a cancelled call as if the client had finished them: only the handler's own end tells.
        try:
            async for _ in requests:
                pass
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    async def broken() -> AsyncIterator[pb.CopyLogSegmentDataRequest]:
        yield pb.CopyLogSegmentDataRequest(finish=pb.CopyFinish())
        raise OSError("disk is gone")

    async with talking(ScriptedStorage(copy=copy)) as (stub, _):
        with pytest.raises(OSError, match="disk is gone"):
            await call_upload(stub.CopyLogSegmentData, broken())
        await eventually(lambda: ended)

    assert ended == ["CancelledError"]


async def test_text_of_an_unforeseen_exception_stays_in_the_server() -> None:
    async def describe(request: Any, context: Any) -> Any:
        raise ValueError("password=hunter2")

    async with talking(ScriptedStorage(describe=describe)) as (stub, _):
        with pytest.raises(InternalError) as raised:
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest())

    assert "hunter2" not in raised.value.message
    assert raised.value.metadata["requestId"] in raised.value.message


async def test_a_handler_that_leaks_a_cancellation_answers_an_internal_error() -> None:
    async def describe(request: Any, context: Any) -> Any:
        raise asyncio.CancelledError

    async with talking(ScriptedStorage(describe=describe)) as (stub, _):
        with pytest.raises(InternalError):
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest())


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    settings = GrpcClientSettings(max_attempts=1)
    async with connect("127.0.0.1:1", settings=settings) as channel:
        with pytest.raises(RemoteStorageUnavailableError) as raised:
            await call_unary(
                channel.unary_unary("/x.Y/Z", lambda _: b"", lambda _: None), None, deadline_s=60
            )

    assert raised.value.reason is ErrorReason.PEER_UNAVAILABLE


async def test_an_rpc_that_the_server_lacks_is_named() -> None:
    async with talking(ScriptedStorage()) as (_, channel):
        with pytest.raises(AquiferError, match="UNIMPLEMENTED"):
            await call_unary(
                channel.unary_unary("/x.Y/Z", lambda _: b"", lambda _: None), None, deadline_s=60
            )


async def test_closing_a_stream_early_cancels_its_rpc() -> None:
    ended: list[bool] = []

    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield pb.FetchLogSegmentResponse(data=b"x" * 100_000)
        finally:
            ended.append(True)

    async with talking(ScriptedStorage(fetch=fetch)) as (stub, _):
        pieces = call_stream(stub.FetchLogSegment, pb.FetchLogSegmentRequest())
        async with aclosing(pieces):
            await anext(pieces)
        await eventually(lambda: ended)

    assert ended == [True]


async def test_a_stub_of_a_foreign_channel_is_refused() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(TypeError, match="Channel"):
            await call_unary(channel.unary_unary("/x.Y/Z"), b"")


@pytest.mark.parametrize("limited", ["client", "server"])
async def test_what_is_too_large_for_a_message_is_no_quota_that_frees_itself(limited: str) -> None:
    """Callers wait for a quota and ask again, users of Kafka for ever."""
    size_bytes, limit_bytes = 300_000, 100_000

    async def describe(request: Any, context: Any) -> Any:
        segment = pb.DescribeSegmentResponse()
        segment.segment.writer_version = "v" * size_bytes
        return segment

    client = GrpcClientSettings(max_message_bytes=limit_bytes) if limited == "client" else None
    server = GrpcServerSettings(max_message_bytes=limit_bytes) if limited == "server" else None
    large = pb.DescribeSegmentRequest()
    large.metadata.custom_metadata = bytes(size_bytes)
    servicer = ScriptedStorage(describe=describe)
    async with talking(servicer, client=client, settings=server) as (stub, _):
        with pytest.raises(InvalidRequestError, match="the request is too large"):
            await call_unary(stub.DescribeSegment, large)
        with pytest.raises(InternalError, match="the answer is too large"):
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest())
