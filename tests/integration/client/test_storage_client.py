import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.errors import CorruptSegmentError, RemoteStorageUnavailableError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import LogSegmentData, RemoteLogSegmentMetadata
from aquifer_rpc import convert
from fixtures.polling import eventually
from fixtures.scripted_storage import ScriptedStorage, collect, serving

MIB = 1024 * 1024
SEGMENT = RemoteLogSegmentMetadata(
    segment_id=RemoteLogSegmentId.generate(TopicIdPartition(KafkaUuid.random(), "t", 0)),
    start_offset=0,
    end_offset=9,
    broker_id=1,
    max_timestamp_ms=1,
    event_timestamp_ms=2,
    segment_size_bytes=3,
    segment_leader_epochs={0: 0},
)


class Log:
    """A log read in pieces of given sizes."""

    def __init__(self, *sizes: int, fail: bool = False) -> None:
        self.pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
        self.fail = fail
        self.opened = self.closed = False

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces))

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        self.opened = True
        try:
            for piece in self.pieces:
                yield memoryview(piece)
            if self.fail:
                raise OSError("disk is gone")
        finally:
            self.closed = True


def segment_data(log: Log, **optional: bytes) -> LogSegmentData:
    return LogSegmentData(
        offset_index=b"o" * 8,
        time_index=b"",
        leader_epochs=b"0\n",
        log_segment=log,
        **optional,
    )


@asynccontextmanager
async def client_of(servicer: ScriptedStorage) -> AsyncIterator[GrpcRemoteStorageManager]:
    async with serving(servicer) as server:
        manager = GrpcRemoteStorageManager()
        await manager.configure({"endpoints": f"127.0.0.1:{server.port}", "max.attempts": "2"})
        try:
            yield manager
        finally:
            await manager.close()


async def test_a_copy_sends_the_spec_the_indexes_the_log_and_the_end_in_order() -> None:
    received: list[pb.CopyLogSegmentDataRequest] = []

    async def copy(requests: Any, context: Any) -> Any:
        await collect(requests, received)
        return pb.CopyLogSegmentDataResponse(custom_metadata=b"x", stored_bytes=7, log_sha256="s")

    log = Log(10, 2 * MIB + 5, 1)
    async with client_of(ScriptedStorage(copy=copy)) as manager:
        result = await manager.copy_log_segment_data(
            SEGMENT, segment_data(log, producer_snapshot=b"snapshot")
        )

    assert (result.custom_metadata, result.stored_bytes, result.log_sha256) == (b"x", 7, "s")
    spec = received[0].spec
    assert convert.segment_metadata_from_pb(spec.metadata) == SEGMENT
    assert [(part.part, part.size_bytes) for part in spec.parts] == [
        (pb.SEGMENT_PART_OFFSET_INDEX, 8),
        (pb.SEGMENT_PART_TIME_INDEX, 0),
        (pb.SEGMENT_PART_PRODUCER_SNAPSHOT, 8),
        (pb.SEGMENT_PART_LEADER_EPOCHS, 2),
        (pb.SEGMENT_PART_SEGMENT, log.size_bytes),
    ]
    assert received[-1].WhichOneof("message") == "finish"
    chunks = [message.chunk for message in received[1:-1]]
    assert all(len(chunk.data) <= MIB and crc32c(chunk.data) == chunk.crc32c for chunk in chunks)
    sent = [chunk for chunk in chunks if chunk.part == pb.SEGMENT_PART_SEGMENT]
    assert chunks[-len(sent) :] == sent
    assert b"".join(chunk.data for chunk in sent) == b"".join(log.pieces)
    assert [chunk.position for chunk in sent] == [0, 10, 10 + MIB, 10 + 2 * MIB, 15 + 2 * MIB]


async def test_a_log_that_cannot_be_read_ends_the_copy_without_a_finish() -> None:
    received: list[pb.CopyLogSegmentDataRequest] = []
    ended = asyncio.Event()

    async def copy(requests: Any, context: Any) -> Any:
        try:
            await collect(requests, received)
        finally:
            ended.set()

    async with client_of(ScriptedStorage(copy=copy)) as manager, asyncio.timeout(60):
        with pytest.raises(OSError, match="disk is gone"):
            await manager.copy_log_segment_data(SEGMENT, segment_data(Log(10, fail=True)))
        await ended.wait()

    assert all(message.WhichOneof("message") != "finish" for message in received)


async def test_the_log_is_closed_when_a_copy_is_refused_or_given_up() -> None:
    begun = asyncio.Event()

    async def refuse(requests: Any, context: Any) -> Any:
        await eventually(lambda: refused.opened)
        raise RemoteStorageUnavailableError("not now")

    async def stall(requests: Any, context: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    refused, given_up = Log(*[MIB] * 64), Log(*[MIB] * 64)
    async with client_of(ScriptedStorage(copy=refuse)) as manager, asyncio.timeout(60):
        with pytest.raises(RemoteStorageUnavailableError):
            await manager.copy_log_segment_data(SEGMENT, segment_data(refused))
        assert refused.closed
    async with client_of(ScriptedStorage(copy=stall)) as manager, asyncio.timeout(60):
        copying = asyncio.create_task(
            manager.copy_log_segment_data(SEGMENT, segment_data(given_up))
        )
        await begun.wait()
        await eventually(lambda: given_up.opened)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert given_up.closed


async def test_a_copy_is_not_repeated_by_itself() -> None:
    async def copy(requests: Any, context: Any) -> Any:
        raise RemoteStorageUnavailableError("not now")

    servicer = ScriptedStorage(copy=copy)
    async with client_of(servicer) as manager:
        with pytest.raises(RemoteStorageUnavailableError):
            await manager.copy_log_segment_data(SEGMENT, segment_data(Log(10)))

    assert servicer.calls == 1


def piece(position: int, data: bytes, crc: int | None = None) -> pb.FetchLogSegmentResponse:
    return pb.FetchLogSegmentResponse(
        position=position, data=data, crc32c=crc32c(data) if crc is None else crc
    )


@pytest.mark.parametrize(
    "second",
    [piece(5, b"abc", crc=1), piece(6, b"abc"), piece(4, b"abc")],
    ids=["wrong crc", "gap", "overlap"],
)
async def test_bytes_damaged_on_the_way_are_never_given_out(
    second: pb.FetchLogSegmentResponse,
) -> None:
    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield piece(2, b"xyz")
        yield second

    received: list[bytes | memoryview] = []
    async with client_of(ScriptedStorage(fetch=fetch)) as manager:
        with pytest.raises(CorruptSegmentError) as raised:
            await collect(manager.fetch_log_segment(SEGMENT, 2), received)

    assert received == [b"xyz"]
    assert raised.value.metadata["segmentId"] == str(SEGMENT.segment_id.id)
    assert raised.value.metadata["position"] == str(second.position)


async def test_closing_a_fetch_early_stops_the_transfer() -> None:
    stopped = asyncio.Event()
    sent = 0

    async def fetch(request: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal sent
        data = b"x" * MIB
        try:
            while True:
                yield piece(sent * MIB, data)
                sent += 1
        finally:
            stopped.set()

    async with client_of(ScriptedStorage(fetch=fetch)) as manager, asyncio.timeout(60):
        contents: Any = manager.fetch_log_segment(SEGMENT, 0)
        async with aclosing(contents):
            await anext(contents)
        await stopped.wait()

    assert sent < 64
