"""The stream of a copy over gRPC: only complete, ordered and sound streams are stored."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import builders
import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_client._segment_parts import copy_messages, encode_copy_message
from aquifer_core.errors import (
    AquiferError,
    CorruptSegmentError,
    ErrorReason,
    InvalidRequestError,
    RemoteStorageUnavailableError,
)
from aquifer_rpc.calls import call_unary, call_upload
from aquifer_rpc.channel import Channel, connect
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.app import running_server
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.servicer import RemoteStorageServicer
from aquifer_storage.settings import Backend, FilesystemSettings, StorageSettings
from fixtures.hooked_object_store import COPY_OPTIONS, HookedObjectStore
from fixtures.polling import eventually

Message = pb.CopyLogSegmentDataRequest
SEGMENT = builders.segment(size_bytes=2_500_000)
_ATTEMPTS = 20


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[Channel]:
    settings = StorageSettings(
        backend=Backend.FILESYSTEM,
        filesystem=FilesystemSettings(root=tmp_path),
        grpc=GrpcServerSettings(drain_grace_s=0),
    )
    async with (
        running_server(settings) as server,
        connect(f"127.0.0.1:{server.port}") as channel,
    ):
        yield channel


@pytest.fixture
def left(tmp_path: Path) -> Callable[[], list[str]]:
    """Names every file in the store but those of readiness probes, which come and go."""
    return lambda: sorted(
        path.name
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.name.startswith("probe-")
    )


async def sound_messages() -> list[Message]:
    """The messages of a sound copy."""
    return [
        Message.FromString(encode_copy_message(message))
        async for message in copy_messages(SEGMENT.metadata, SEGMENT.data)
    ]


async def sent(channel: Channel, messages: list[Message]) -> pb.CopyLogSegmentDataResponse:
    """Send the messages of a copy; again when gRPC lost the answer to a stream that was refused while it was sent."""

    async def stream() -> AsyncIterator[Message]:
        for message in messages:
            yield message

    stub = RemoteStorageServiceStub(channel)
    for _ in range(_ATTEMPTS):
        try:
            return await call_upload(stub.CopyLogSegmentData, stream())
        except RemoteStorageUnavailableError as error:
            if error.reason is not ErrorReason.PEER_UNAVAILABLE:
                raise
    raise AssertionError(f"no answer after {_ATTEMPTS} attempts")


def without_finish(messages: list[Message]) -> list[Message]:
    return messages[:-1]


def without_a_chunk(messages: list[Message]) -> list[Message]:
    return messages[:-3] + messages[-2:]


def finish_twice(messages: list[Message]) -> list[Message]:
    return [*messages[:-2], messages[-1]]


def chunks_swapped(messages: list[Message]) -> list[Message]:
    return [*messages[:-3], messages[-2], messages[-3], messages[-1]]


def without_spec(messages: list[Message]) -> list[Message]:
    return messages[1:]


def spec_with(change: Callable[[pb.CopySpec], None]) -> Callable[[list[Message]], list[Message]]:
    """Change the spec."""

    def changed(messages: list[Message]) -> list[Message]:
        spec = pb.CopySpec()
        spec.CopyFrom(messages[0].spec)
        change(spec)
        return [Message(spec=spec), *messages[1:]]

    return changed


def log_first(spec: pb.CopySpec) -> None:
    parts = list(spec.parts)
    del spec.parts[:]
    spec.parts.extend([parts[-1], *parts[:-1]])


def part_twice(spec: pb.CopySpec) -> None:
    spec.parts.insert(0, spec.parts[0])


def part_lacking(spec: pb.CopySpec) -> None:
    del spec.parts[0]


def negative_size(spec: pb.CopySpec) -> None:
    spec.parts[0].size_bytes = -1


def huge_index(spec: pb.CopySpec) -> None:
    spec.parts[0].size_bytes = 1 << 40


def longer_log(spec: pb.CopySpec) -> None:
    spec.parts[-1].size_bytes += 1
    spec.metadata.segment_size_bytes += 1


def shorter_log(spec: pb.CopySpec) -> None:
    spec.parts[-1].size_bytes -= 1
    spec.metadata.segment_size_bytes -= 1


def no_metadata(spec: pb.CopySpec) -> None:
    spec.ClearField("metadata")


@pytest.mark.parametrize(
    "change",
    [
        without_finish,
        without_a_chunk,
        finish_twice,
        chunks_swapped,
        without_spec,
        lambda messages: [],
        *map(
            spec_with,
            [
                log_first,
                part_twice,
                part_lacking,
                negative_size,
                huge_index,
                longer_log,
                shorter_log,
                no_metadata,
            ],
        ),
    ],
)
async def test_a_stream_out_of_order_is_refused_and_leaves_nothing(
    channel: Channel,
    left: Callable[[], list[str]],
    change: Callable[[list[Message]], list[Message]],
) -> None:
    with pytest.raises(InvalidRequestError):
        await sent(channel, change(await sound_messages()))
    assert left() == []


async def test_a_chunk_damaged_on_its_way_is_data_loss(
    channel: Channel, left: Callable[[], list[str]]
) -> None:
    for number in (1, -2):
        messages = await sound_messages()
        messages[number].chunk.crc32c ^= 1
        with pytest.raises(CorruptSegmentError) as raised:
            await sent(channel, messages)
        assert raised.value.reason is ErrorReason.CHECKSUM_MISMATCH
        assert left() == []


async def test_a_caller_that_leaves_in_the_middle_leaves_nothing(
    channel: Channel, left: Callable[[], list[str]]
) -> None:
    messages = await sound_messages()
    begun = asyncio.Event()

    async def stream() -> AsyncIterator[Message]:
        for message in messages[:-2]:
            yield message
        begun.set()
        await asyncio.Event().wait()

    stub = RemoteStorageServiceStub(channel)
    copy = asyncio.create_task(call_upload(stub.CopyLogSegmentData, stream()))
    await begun.wait()
    copy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copy
    await eventually(lambda: not left())
    assert (await sent(channel, messages)).log_sha256


async def test_metadata_that_breaks_a_rule_is_refused(channel: Channel) -> None:
    messages = await sound_messages()
    messages[0].spec.metadata.end_offset = messages[0].spec.metadata.start_offset - 1
    with pytest.raises(AquiferError) as raised:
        await sent(channel, messages)
    assert raised.value.reason is ErrorReason.INVALID_SEGMENT


async def test_the_capabilities_are_those_of_the_settings(channel: Channel) -> None:
    stub = RemoteStorageServiceStub(channel)
    found = await call_unary(stub.GetCapabilities, pb.GetCapabilitiesRequest())
    assert (found.backend, found.compression, found.encryption) == ("filesystem", "none", "none")
    assert found.chunk_size_bytes == 4 << 20
    assert found.max_message_data_bytes == 1 << 20
    assert SEGMENT.metadata.segment_size_bytes < found.max_segment_bytes
    assert found.version


async def test_of_many_copies_at_once_indexes_are_received_as_far_as_the_budget_reaches(
    tmp_path: Path,
) -> None:
    """T45: who waits for room has sent its spec and nothing else; some that have room wait for the store."""
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and key.endswith(".log"):
            reached.set()
            await go.wait()

    objects = HookedObjectStore(FilesystemObjectStore(tmp_path), hold)
    storage = RemoteStorage(objects, options=COPY_OPTIONS, writer_version="1")
    servicer = RemoteStorageServicer(storage, backend="", store_check=cast(Any, None))
    begun = most_bytes = 0

    async def messages() -> AsyncIterator[Message]:
        nonlocal begun, most_bytes
        segment = builders.segment(size_bytes=5_000, producer_snapshot=bytes(5_000))
        sent = [
            Message.FromString(encode_copy_message(message))
            async for message in copy_messages(segment.metadata, segment.data)
        ]
        for number, message in enumerate(sent):
            begun += number == 1
            most_bytes = max(most_bytes, storage.writer.budget.used_bytes)
            yield message

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(servicer.CopyLogSegmentData(messages(), cast(Any, None)))
        await reached.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert 0 < begun <= COPY_OPTIONS.upload_budget_bytes // 10_000
        go.set()
    assert begun == 16
    assert most_bytes <= COPY_OPTIONS.upload_budget_bytes
    assert storage.writer.budget.used_bytes == 0
    await storage.close()
