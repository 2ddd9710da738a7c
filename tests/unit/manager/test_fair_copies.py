"""A partition that is far behind uses what others leave, and takes nothing from them (SR-18)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_manager.app.parts import manager_parts
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.settings import ManagerSettings
from fixtures.manager_indexes import remote_indexes
from fixtures.manager_world import (
    SimulatedBroker,
    SimulatedBrokers,
    SimulatedLog,
    SteppedClock,
    partition,
    settle,
)

BEHIND = partition(number=0)
OTHERS = [partition(number=number) for number in range(1, 21)]
AT_ONCE = 3


class Rounds:
    """A manager's parts over one broker whose uploads end all together, when told to."""

    def __init__(self, **settings: int) -> None:
        self.clock = SteppedClock()
        self.broker = SimulatedBroker(self._upload)
        self.open: dict[tuple[TopicIdPartition, int], asyncio.Future[None]] = {}
        self.done: Counter[TopicIdPartition] = Counter()
        self.hasty = False
        storage = InMemoryRemoteStorageManager()
        self.metadata = InMemoryRemoteLogMetadataManager(clock=self.clock)
        brokers = BatchedBrokers(SimulatedBrokers(broker=self.broker), clock=self.clock)
        self.parts = manager_parts(
            ManagerSettings(copy_segments_at_once=AT_ONCE, **settings),  # type: ignore[arg-type]
            storage,
            self.metadata,
            brokers,
            DeletionFailures(storage, None, clock=self.clock),
            facts=PartitionFacts(self.metadata),
            indexes=remote_indexes(self.metadata, storage, self.clock),
            clock=self.clock,
            telemetry=NoTelemetry(),
        )
        self.parts.registry.register(1, "one", "broker")

    async def _upload(self, metadata: RemoteLogSegmentMetadata) -> CopyResult:
        key = metadata.topic_id_partition, metadata.start_offset
        if not self.hasty:
            gate = self.open[key] = asyncio.get_running_loop().create_future()
            await gate
            del self.open[key]
        self.done[metadata.topic_id_partition] += 1
        return CopyResult(custom_metadata=None, stored_bytes=1, log_sha256="")

    def announce(self, tip: TopicIdPartition, segments: int) -> None:
        self.broker.add(SimulatedLog(tip)).roll(segments)
        registry = self.parts.registry
        role = PartitionRole(topic_id_partition=tip, leader_epoch=0, config=TopicConfig())
        registry.lead(1, [role])
        self.parts.scheduler.set_tasks(tip, registry.tasks(tip))

    def under_way(self) -> Counter[TopicIdPartition]:
        return Counter(tip for tip, _ in self.open)

    def end_all(self) -> None:
        for gate in self.open.values():
            gate.set_result(None)

    def is_remote(self, tip: TopicIdPartition) -> bool:
        log = self.broker.logs[tip]
        return log.highest_remote_offset == log.log_end_offset - 1


@asynccontextmanager
async def rounds(**settings: int) -> AsyncIterator[Rounds]:
    made = Rounds(**settings)
    async with made.parts.scheduler:
        yield made


async def until(condition: Callable[[], bool]) -> None:
    """Lets things run while the clock stands still."""
    for _ in range(5_000):
        if condition():
            return
        await settle(50)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize(
    ("slots", "per_broker"), [(10, 8), (6, 8)], ids=["places of the broker", "slots of the lane"]
)
async def test_a_partition_far_behind_does_not_starve_twenty_others(
    slots: int, per_broker: int
) -> None:
    """It has several uploads while nobody else waits, one like everybody while others do, and several again."""
    places = min(slots, per_broker)
    async with rounds(thread_pool_size=slots, copy_runs_per_broker=per_broker) as world:
        world.announce(BEHIND, 100)
        await until(lambda: world.under_way()[BEHIND] == AT_ONCE)
        for tip in OTHERS:
            world.announce(tip, 3)
        await until(lambda: len(world.open) == places)
        assert world.under_way()[BEHIND] == AT_ONCE, "an upload that was begun goes on"
        begun = world.done[BEHIND] + AT_ONCE
        number = 0
        while sum(not world.is_remote(tip) for tip in OTHERS) > places:
            world.end_all()
            number += 1
            await until(lambda: not any(gate.done() for gate in world.open.values()))
            await until(lambda: len(world.open) == places)
            under_way = world.under_way()
            assert max(under_way.values()) == 1, "somebody waits, so nobody has two"
        assert world.done[BEHIND] <= begun + number
        assert sum(world.done[tip] for tip in OTHERS) >= number * (places - 1) - AT_ONCE
        while world.under_way()[BEHIND] < AT_ONCE or not all(map(world.is_remote, OTHERS)):
            world.end_all()
            await until(lambda: not any(gate.done() for gate in world.open.values()))
            await settle(200)
        assert world.done[BEHIND] < 100
        world.hasty = True
        world.end_all()
        await until(lambda: world.is_remote(BEHIND))
    assert world.done[BEHIND] == 100


async def test_whoever_comes_late_gets_the_next_place_that_is_free() -> None:
    """All places are taken by further uploads of one partition; another one waits for a single upload."""
    async with rounds(thread_pool_size=3, copy_runs_per_broker=3) as world:
        world.announce(BEHIND, 100)
        await until(lambda: world.under_way()[BEHIND] == 3)
        world.announce(OTHERS[0], 2)
        await settle(500)
        assert world.under_way()[OTHERS[0]] == 0
        newest = max(start for _, start in world.open)
        world.open[BEHIND, newest].set_result(None)
        await until(lambda: world.under_way()[OTHERS[0]] == 1)
        assert world.under_way()[BEHIND] == 2
        world.hasty = True
        world.end_all()
        await until(lambda: world.is_remote(BEHIND) and world.is_remote(OTHERS[0]))
