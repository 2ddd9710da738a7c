import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer.metadata.v1 import remote_log_metadata_service_pb2_grpc as pb_grpc
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import RemoteStorageUnavailableError, UnavailableError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.partition_summary import SummariesUnsupportedError
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings

TIP = TopicIdPartition(KafkaUuid.random(), "t", 0)
WATCH = "/aquifer.metadata.v1.RemoteLogMetadataService/WatchPartition"

if TYPE_CHECKING:
    _Servicer = object
else:
    _Servicer = pb_grpc.RemoteLogMetadataServiceServicer


class Changes(_Servicer):
    """Serves versions up to a limit, then fails as told or waits for ever."""

    def __init__(self, *, upto: int, then: BaseException | None) -> None:
        self.asked: list[int] = []
        self._upto = upto
        self._then = then

    async def WatchPartition(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request.from_version)
        for version in range(request.from_version + 1, self._upto + 1):
            yield pb.WatchPartitionResponse(version=version, earliest_log_offset=version)
        if self._then is not None:
            raise self._then
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(servicer: object) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(
        GrpcServerSettings(drain_grace_s=0), name="changes", endless_methods={WATCH}
    )
    add = pb_grpc.add_RemoteLogMetadataServiceServicer_to_server
    server.add(add, cast(Any, servicer))
    async with server:
        yield server


@asynccontextmanager
async def watching(*servers: GrpcServer) -> AsyncIterator[AsyncIterator[int]]:
    manager = GrpcRemoteLogMetadataManager()
    endpoints = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    await manager.configure({"endpoints": endpoints, "max.attempts": "2"})
    changes: Any = manager.watch_partition(TIP)
    try:
        async with aclosing(changes), asyncio.timeout(60):
            yield (change.version async for change in changes)
    finally:
        await manager.close()


async def test_a_watch_goes_on_at_another_replica_from_where_it_broke() -> None:
    breaking = Changes(upto=2, then=UnavailableError("draining"))
    lasting = Changes(upto=5, then=None)
    # Without an affinity key the second endpoint of a fresh channel is asked first.
    async with (
        serving(lasting) as first,
        serving(breaking) as second,
        watching(first, second) as versions,
    ):
        seen = [await anext(versions) for _ in range(5)]

    assert seen == [1, 2, 3, 4, 5]
    assert breaking.asked == [0]
    assert lasting.asked == [2]


async def test_a_watch_that_breaks_before_any_change_fails() -> None:
    broken = Changes(upto=0, then=UnavailableError("not now"))
    async with serving(broken) as server, watching(server) as versions:
        with pytest.raises(UnavailableError):
            await anext(versions)


async def test_a_watch_has_no_end_so_an_ended_one_is_a_failure() -> None:
    class Ending(Changes):
        async def WatchPartition(self, request: Any, context: Any) -> AsyncIterator[Any]:
            for _ in ():
                yield pb.WatchPartitionResponse()

    async with serving(Ending(upto=0, then=None)) as server, watching(server) as versions:
        with pytest.raises(RemoteStorageUnavailableError, match="ended"):
            await anext(versions)


class Partitions(_Servicer):
    """Notes what a node says of its partitions."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.followers: set[int] = set()
        self.stopped: set[int] = set()

    async def OnPartitionLeadershipChanges(self, request: Any, context: Any) -> Any:
        for led in request.leaders:
            self.leaders[led.topic_id_partition.partition] = led.leader_epoch
        self.followers |= {each.partition for each in request.followers}
        return pb.OnPartitionLeadershipChangesResponse()

    async def OnStopPartitions(self, request: Any, context: Any) -> Any:
        self.stopped |= {each.partition for each in request.partitions}
        return pb.OnStopPartitionsResponse()


async def test_a_node_may_have_more_partitions_than_a_message_takes() -> None:
    tips = [TopicIdPartition(TIP.topic_id, "n" * 249, number) for number in range(20_000)]
    servicer = Partitions()
    async with serving(servicer) as server:
        manager = GrpcRemoteLogMetadataManager()
        await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
        await manager.on_partition_leadership_changes(dict.fromkeys(tips, 3), tips)
        await manager.on_stop_partitions(tips)
        await manager.close()

    numbers = set(range(20_000))
    assert servicer.leaders == dict.fromkeys(numbers, 3)
    assert servicer.followers == servicer.stopped == numbers


async def test_a_service_that_has_no_summaries_yet_is_told_from_one_that_fails() -> None:
    manager = GrpcRemoteLogMetadataManager()
    async with GrpcServer(GrpcServerSettings(drain_grace_s=0), name="older") as server:
        await manager.configure({"endpoints": f"127.0.0.1:{server.port}"})
        try:
            with pytest.raises(SummariesUnsupportedError):
                await manager.partition_summaries([(TIP, None)])
        finally:
            await manager.close()
