"""How calls end that send messages, whatever the sender does at that moment."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1 import remote_storage_service_pb2_grpc as pb_grpc
from aquifer_core.errors import (
    AquiferError,
    DeadlineExceededError,
    OffsetOutOfRangeError,
    RemoteStorageUnavailableError,
)
from aquifer_rpc.calls import call_upload
from aquifer_rpc.channel import connect
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, serving, talking

DEADLINE_S = 60.0
SMALL_BYTES, LARGE_BYTES = 100, 1 << 20


async def refusing(requests: Any, context: Any) -> Any:
    async for _ in requests:
        raise OffsetOutOfRangeError("no")


async def messages(count: int | None, size_bytes: int) -> AsyncIterator[Any]:
    """So many messages; without end when None."""
    message = pb.CopyLogSegmentDataRequest(chunk=pb.CopyChunk(data=bytes(size_bytes)))
    sent = 0
    while sent != count:
        yield message
        sent += 1


async def outcome(stub: Any, requests: AsyncIterator[Any], deadline_s: float = DEADLINE_S) -> str:
    try:
        await call_upload(stub.CopyLogSegmentData, requests, deadline_s=deadline_s)
    except AquiferError as error:
        return type(error).__name__
    return "answered"


@pytest.mark.parametrize(
    ("count", "size_bytes"),
    [(None, SMALL_BYTES), (3, SMALL_BYTES), (None, LARGE_BYTES)],
    ids=["endless", "few", "large"],
)
async def test_a_refusal_arrives_also_while_a_message_is_on_its_way(
    count: int | None, size_bytes: int
) -> None:
    """Of calls as small as these, gRPC hides the refusal of two in a hundred behind an error of its own."""
    async with talking(ScriptedStorage(copy=refusing)) as (stub, _):
        seen = Counter([await outcome(stub, messages(count, size_bytes)) for _ in range(150)])

    assert seen == {"OffsetOutOfRangeError": 150}


async def test_a_deadline_is_one_whatever_was_being_sent() -> None:
    async def taking(requests: Any, context: Any) -> Any:
        async for _ in requests:
            pass
        await asyncio.Event().wait()

    async with talking(ScriptedStorage(copy=taking)) as (stub, _):
        deadlines_s = [0.001 * number for number in range(2, 42)]
        calls = [outcome(stub, messages(3, LARGE_BYTES), each_s) for each_s in deadlines_s]
        seen = Counter(await asyncio.gather(*calls))

    assert seen == {DeadlineExceededError.__name__: len(deadlines_s)}


async def test_an_answer_is_not_kept_waiting_by_a_source_that_has_nothing_to_send() -> None:
    async def answering(requests: Any, context: Any) -> Any:
        await anext(aiter(requests))
        return pb.CopyLogSegmentDataResponse(stored_bytes=42)

    async def stalled() -> AsyncIterator[Any]:
        try:
            yield pb.CopyLogSegmentDataRequest()
            await asyncio.Event().wait()
        finally:
            ended.set()

    ended = asyncio.Event()
    for copy, expected in ((answering, "answered"), (refusing, "OffsetOutOfRangeError")):
        ended.clear()
        async with talking(ScriptedStorage(copy=copy)) as (stub, _), asyncio.timeout(DEADLINE_S):
            assert await outcome(stub, stalled(), deadline_s=600) == expected
        assert ended.is_set()


async def test_a_deadline_ends_an_upload_whose_source_has_nothing_to_send() -> None:
    async def taking(requests: Any, context: Any) -> Any:
        async for _ in requests:
            pass

    async def stalled() -> AsyncIterator[Any]:
        yield pb.CopyLogSegmentDataRequest()
        await asyncio.Event().wait()

    async with talking(ScriptedStorage(copy=taking)) as (stub, _), asyncio.timeout(DEADLINE_S):
        assert await outcome(stub, stalled(), deadline_s=0.2) == DeadlineExceededError.__name__


async def test_uploads_of_a_channel_that_closes_as_they_begin_end() -> None:
    async def taking(requests: Any, context: Any) -> Any:
        async for _ in requests:
            pass
        return pb.CopyLogSegmentDataResponse()

    async with serving(ScriptedStorage(copy=taking)) as server:
        for turns in range(6):
            async with connect(f"127.0.0.1:{server.port}") as channel:
                stub = pb_grpc.RemoteStorageServiceStub(channel)
                upload = asyncio.create_task(outcome(stub, messages(None, SMALL_BYTES)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await channel.close()
                await eventually(upload.done)
            assert await upload == RemoteStorageUnavailableError.__name__


async def test_who_cancels_an_upload_gets_a_cancellation() -> None:
    begun = asyncio.Event()

    async def taking(requests: Any, context: Any) -> Any:
        async for _ in requests:
            begun.set()

    async def stalled() -> AsyncIterator[Any]:
        yield pb.CopyLogSegmentDataRequest()
        await asyncio.Event().wait()

    async with talking(ScriptedStorage(copy=taking)) as (stub, _):
        upload = asyncio.create_task(outcome(stub, stalled()))
        await asyncio.wait_for(begun.wait(), DEADLINE_S)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload


async def test_an_upload_goes_to_the_replica_that_is_there() -> None:
    """Nothing was sent yet, so nothing is sent twice: a replica that is away fails no copies."""
    received: list[int] = []

    async def taking(requests: Any, context: Any) -> Any:
        received.append(len([each async for each in requests]))
        return pb.CopyLogSegmentDataResponse()

    async with (
        serving(ScriptedStorage(copy=taking)) as server,
        connect(["127.0.0.1:1", f"127.0.0.1:{server.port}"]) as channel,
    ):
        stub = pb_grpc.RemoteStorageServiceStub(channel)
        for key in range(16):
            await call_upload(
                stub.CopyLogSegmentData,
                messages(3, SMALL_BYTES),
                deadline_s=DEADLINE_S,
                affinity=bytes([key]),
            )

    assert received == [3] * 16


async def test_an_upload_that_was_begun_is_not_repeated() -> None:
    async def failing(requests: Any, context: Any) -> Any:
        await anext(aiter(requests))
        raise RemoteStorageUnavailableError("the store is away")

    servicer = ScriptedStorage(copy=failing)
    async with talking(servicer) as (stub, _):
        assert (
            await outcome(stub, messages(3, SMALL_BYTES)) == RemoteStorageUnavailableError.__name__
        )

    assert servicer.calls == 1
