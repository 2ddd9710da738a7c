"""A deleted topic loses its remote data, whatever dies meanwhile: the real metadata service, managers that come and go (T20)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as pb
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.errors import (
    ErrorReason,
    PreconditionError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.app import Manager
from aquifer_manager.settings import ManagerSettings
from aquifer_rpc.calls import call_unary
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from fixtures.manager_segments import Segment, batch, put
from fixtures.polling import eventually

TOPIC = "events"
PARTITIONS = 3
SEGMENTS = 4


class SlowStorage(InMemoryRemoteStorageManager):
    """Deletions wait at a gate once `open_for` of them have passed."""

    def __init__(self, open_for: int) -> None:
        super().__init__()
        self.open_for = open_for
        self.waiting = 0
        self.gate = asyncio.Event()

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.open_for == 0 and not self.gate.is_set():
            self.waiting += 1
            await self.gate.wait()
        self.open_for = max(0, self.open_for - 1)
        await super().delete_log_segment_data(metadata)


@dataclass(kw_only=True)
class World:
    """A metadata service with a topic, its remote segments, and managers on demand."""

    stub: Any
    rlmm: GrpcRemoteLogMetadataManager
    endpoint: str
    directory: Path
    partitions: list[TopicIdPartition]

    async def fill(self, storage: InMemoryRemoteStorageManager) -> None:
        for tip in self.partitions:
            for offset in range(SEGMENTS):
                await put(Segment(tip=tip, batches=[batch(offset)]), storage, self.rlmm)

    async def delete_topic(self) -> None:
        answer = await call_unary(self.stub.DeleteTopics, pb.DeleteTopicsRequest(names=[TOPIC]))
        assert answer.results[0].error_reason == ""

    async def done(self) -> bool:
        return [each async for each in self.rlmm.list_partition_deletions()] == []

    @asynccontextmanager
    async def manager(
        self, storage: InMemoryRemoteStorageManager, **settings: Any
    ) -> AsyncIterator[Manager]:
        """A manager with an empty disk, killed rather than stopped."""
        quick: dict[str, Any] = {
            "data_dir": self.directory / str(KafkaUuid.random()),
            "grpc": GrpcServerSettings(drain_grace_s=0.1),
            "task_interval_ms": 100,
            "task_retry_backoff_ms": 20,
            "stop_grace_ms": 0,
            "metadata": {
                "class_name": "aquifer_client.GrpcRemoteLogMetadataManager",
                "endpoints": self.endpoint,
            },
            **settings,
        }
        async with Manager(ManagerSettings(**quick), storage=storage) as manager:
            yield manager


@pytest.fixture
async def world(
    metadata_server: GrpcServer, cluster_stub: Any, tmp_path: Path
) -> AsyncIterator[World]:
    broker = pb.Broker(
        broker_id=1,
        incarnation=str(KafkaUuid.random()),
        endpoints=[pb.Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092)],
        log_dirs=["a"],
    )
    await call_unary(cluster_stub.RegisterBroker, pb.RegisterBrokerRequest(broker=broker))
    topic = pb.NewTopic(
        name=TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=1,
        configs={"remote.storage.enable": "true"},
    )
    made = await call_unary(cluster_stub.CreateTopics, pb.CreateTopicsRequest(topics=[topic]))
    topic_id = KafkaUuid.parse(made.results[0].topic_id)
    endpoint = f"127.0.0.1:{metadata_server.port}"
    rlmm = GrpcRemoteLogMetadataManager()
    await rlmm.configure({"endpoints": endpoint})
    yield World(
        stub=cluster_stub,
        rlmm=rlmm,
        endpoint=endpoint,
        directory=tmp_path,
        partitions=[TopicIdPartition(topic_id, TOPIC, number) for number in range(PARTITIONS)],
    )
    await rlmm.close()


async def assert_forgotten(world: World) -> None:
    """FINISHED: look-ups say so, and nothing is left."""
    for tip in world.partitions:
        with pytest.raises(RemoteResourceNotFoundError) as gone:
            await world.rlmm.remote_log_segment_metadata(tip, 0, 0)
        assert gone.value.reason is ErrorReason.PARTITION_NOT_FOUND
        assert [segment async for segment in world.rlmm.list_remote_log_segments(tip)] == []


async def test_a_topic_deleted_without_any_manager_is_cleaned_up_by_the_next_one(
    world: World,
) -> None:
    storage = InMemoryRemoteStorageManager()
    await world.fill(storage)
    await world.delete_topic()
    found = [each async for each in world.rlmm.list_partition_deletions()]
    assert [each.topic_id_partition for each in found] == world.partitions
    assert len(storage.segment_ids) == PARTITIONS * SEGMENTS
    async with world.manager(storage):
        await eventually(world.done, timeout_s=60)
        assert storage.segment_ids == frozenset()
        await assert_forgotten(world)


async def test_managers_killed_in_the_middle_lose_nothing(world: World) -> None:
    """Each dies at another segment, with everything on its disk."""
    storage = SlowStorage(open_for=2)
    await world.fill(storage)
    await world.delete_topic()
    for _ in range(2):
        async with world.manager(storage):
            await eventually(lambda: storage.waiting > 0, timeout_s=60)
        storage.open_for, storage.waiting = 3, 0
        assert not await world.done()
    assert 0 < len(storage.segment_ids) < PARTITIONS * SEGMENTS
    storage.gate.set()
    async with world.manager(storage):
        await eventually(world.done, timeout_s=60)
    assert storage.segment_ids == frozenset()
    await assert_forgotten(world)


async def test_two_managers_at_once_do_no_harm(world: World) -> None:
    storage = InMemoryRemoteStorageManager()
    await world.fill(storage)
    async with AsyncExitStack() as managers:
        made = [await managers.enter_async_context(world.manager(storage)) for _ in range(2)]
        await world.delete_topic()
        await eventually(world.done, timeout_s=60)
        assert storage.segment_ids == frozenset()

        def idle() -> bool:
            return all(manager.task_states() == [] for manager in made)

        await eventually(idle, timeout_s=60)
    await assert_forgotten(world)


async def test_no_copy_can_be_added_to_a_deleted_topic(world: World) -> None:
    """Nor finished under the old leader: also not the first one of a partition nothing was known of."""
    storage = InMemoryRemoteStorageManager()
    known, unknown, led = world.partitions
    copying = Segment(tip=known, batches=[batch(0)]).metadata()
    await world.rlmm.add_remote_log_segment_metadata(copying, leader_epoch=3)
    await world.rlmm.on_partition_leadership_changes({led: 5}, [])
    await world.delete_topic()
    for tip in (known, unknown, led):
        late = Segment(tip=tip, batches=[batch(9)]).metadata()
        with pytest.raises(PreconditionError) as refused:
            await world.rlmm.add_remote_log_segment_metadata(late, leader_epoch=7)
        assert refused.value.reason is ErrorReason.INVALID_PARTITION_TRANSITION
    with pytest.raises(StaleLeaderEpochError):
        await world.rlmm.add_remote_log_segment_metadata(
            Segment(tip=led, batches=[batch(9)]).metadata(), leader_epoch=4
        )
    # The upload ends after all, and nobody is left to record it.
    data = Segment(tip=known, batches=[batch(0)]).data()
    await storage.copy_log_segment_data(copying, data)
    async with world.manager(storage, copy_timeout_ms=1, copy_abandoned_after_ms=2):
        await eventually(world.done, timeout_s=60)
    assert storage.segment_ids == frozenset()


async def test_a_topic_that_was_never_tiered_leaves_nothing_to_do(world: World) -> None:
    topic = pb.NewTopic(name="plain", num_partitions=2, replication_factor=1)
    await call_unary(world.stub.CreateTopics, pb.CreateTopicsRequest(topics=[topic]))
    await call_unary(world.stub.DeleteTopics, pb.DeleteTopicsRequest(names=["plain"]))
    assert await world.done()


async def test_a_topic_may_be_made_again_under_its_name_while_the_old_one_goes(
    world: World,
) -> None:
    storage = SlowStorage(open_for=0)
    await world.fill(storage)
    await world.delete_topic()
    topic = pb.NewTopic(
        name=TOPIC,
        num_partitions=1,
        replication_factor=1,
        configs={"remote.storage.enable": "true"},
    )
    made = await call_unary(world.stub.CreateTopics, pb.CreateTopicsRequest(topics=[topic]))
    again = TopicIdPartition(KafkaUuid.parse(made.results[0].topic_id), TOPIC, 0)
    kept = await put(Segment(tip=again, batches=[batch(0)]), storage, world.rlmm)
    storage.gate.set()
    async with world.manager(storage):
        await eventually(world.done, timeout_s=60)
    assert storage.segment_ids == {kept.segment_id}
    assert await world.rlmm.remote_log_segment_metadata(again, 0, 0) is not None
