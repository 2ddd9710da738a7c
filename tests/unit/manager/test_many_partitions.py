"""A manager as it is put together, with a thousand partitions: fair, and sparing with calls to brokers (SR-18)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_manager.app.parts import manager_parts
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.ports import LogQuery, NoTelemetry
from aquifer_manager.domain.remote_log_manager import ManagerParts, RemoteLogManager
from aquifer_manager.domain.tasks import TaskKey, TaskState, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.servicer.messages import view_pages
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

COUNT = 1000
INTERVAL_S = 30.0
TIPS = [partition(number=number) for number in range(COUNT)]
HANGING = TIPS[17]


class Broker(SimulatedBroker):
    """A broker that counts its descriptions."""

    describes = 0

    async def describe_logs(self, queries: Sequence[LogQuery]) -> list[object]:  # type: ignore[override]
        self.describes += 1
        return list(await super().describe_logs(queries))


class HangingStorage(InMemoryRemoteStorageManager):
    """A store in which one partition's path never answers a deletion."""

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.topic_id_partition == HANGING:
            await asyncio.Event().wait()
        await super().delete_log_segment_data(metadata)


class Thousand:
    """A manager's parts over one broker that leads a thousand partitions, each with one rolled segment."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.broker = Broker(self.upload)
        self.hang = True
        self.storage = HangingStorage()
        self.metadata = InMemoryRemoteLogMetadataManager(clock=self.clock)
        brokers = BatchedBrokers(SimulatedBrokers(broker=self.broker), clock=self.clock)
        self.parts: ManagerParts = manager_parts(
            ManagerSettings(task_interval_ms=int(INTERVAL_S * 1000)),
            self.storage,
            self.metadata,
            brokers,
            DeletionFailures(self.storage, None, clock=self.clock),
            facts=PartitionFacts(self.metadata),
            indexes=remote_indexes(self.metadata, self.storage, self.clock),
            clock=self.clock,
            telemetry=NoTelemetry(),
        )

    async def upload(self, metadata: RemoteLogSegmentMetadata) -> CopyResult:
        if self.hang and metadata.topic_id_partition == HANGING:
            await asyncio.Event().wait()
        return CopyResult(custom_metadata=b"v1", stored_bytes=1, log_sha256="")

    def announce(self, retention_ms: int = -1) -> None:
        registry = self.parts.registry
        registry.register(1, "one", "broker")
        for tip in TIPS:
            if tip not in self.broker.logs:
                self.broker.add(SimulatedLog(tip)).roll(1)
            role = PartitionRole(
                topic_id_partition=tip,
                leader_epoch=0,
                config=TopicConfig(retention_ms=retention_ms),
            )
            registry.lead(1, [role])
            self.parts.scheduler.set_tasks(tip, registry.tasks(tip))

    def states(self, kind: TaskType) -> dict[TopicIdPartition, TaskState]:
        found = self.parts.scheduler.states(TaskKey(tip, kind) for tip in TIPS)
        return {state.key.topic_id_partition: state for state in found}

    def runs(self, kind: TaskType) -> set[int]:
        """Different numbers of finished runs among all but the one that hangs."""
        return {
            state.runs
            for tip, state in self.states(kind).items()
            if tip != HANGING and not state.running
        }


@asynccontextmanager
async def thousand() -> AsyncIterator[Thousand]:
    world = Thousand()
    async with world.parts.scheduler:
        yield world
        # Hanging runs are cancelled after the grace by the real clock; end them now.
        world.parts.scheduler._stop_grace_s = 0.01


async def until(condition: Callable[[], bool]) -> None:
    """Lets things run while the clock stands still."""
    for _ in range(5_000):
        if condition():
            return
        await settle(200)
    raise AssertionError("it did not come to that")


async def test_one_hanging_store_path_leaves_the_others_their_schedule() -> None:
    """Neither its upload nor its deletion ever ends; all others run at their times, while the clock stands still."""
    async with thousand() as world:
        world.announce(retention_ms=0)
        for number in range(1, 3):
            for kind in (TaskType.COPY, TaskType.EXPIRATION):
                await until(lambda kind=kind, number=number: world.runs(kind) == {number})  # type: ignore[misc]
            assert all(
                not state.consecutive_failures
                for tip, state in world.states(TaskType.COPY).items()
                if tip != HANGING
            )
            assert world.states(TaskType.COPY)[HANGING].running
            await world.clock.advance(INTERVAL_S)
        assert world.states(TaskType.COPY)[HANGING].runs == 1


async def test_a_hanging_deletion_leaves_the_others_their_schedule() -> None:
    async with thousand() as world:
        world.hang = False
        world.announce()
        await until(lambda: world.runs(TaskType.COPY) == {1})
        world.announce(retention_ms=0)
        world.parts.scheduler.due_now(TaskKey(tip, TaskType.EXPIRATION) for tip in TIPS)
        await until(lambda: world.states(TaskType.EXPIRATION)[HANGING].running)
        before = {tip: state.runs for tip, state in world.states(TaskType.EXPIRATION).items()}
        for number in range(1, 3):
            await world.clock.advance(INTERVAL_S)
            await until(
                lambda number=number: all(  # type: ignore[misc]
                    state.runs >= before[tip] + number and not state.running
                    for tip, state in world.states(TaskType.EXPIRATION).items()
                    if tip != HANGING
                )
            )
        assert world.states(TaskType.EXPIRATION)[HANGING].running


async def test_brokers_are_asked_about_once_a_moment_and_not_once_a_task() -> None:
    async with thousand() as world:
        world.hang = False
        world.announce()
        await until(lambda: world.runs(TaskType.COPY) == {1})
        await until(lambda: world.runs(TaskType.EXPIRATION) == {1})
        before = world.broker.describes
        await world.clock.advance(INTERVAL_S)
        await until(lambda: world.runs(TaskType.COPY) == {2})
        await until(lambda: world.runs(TaskType.EXPIRATION) == {2})
        calls = world.broker.describes - before
        # 2,000 runs, at most 500 logs a call. Runs whose answer was just on its way ask for themselves.
        assert calls <= 100


async def test_a_watch_of_all_partitions_lets_others_have_their_turn() -> None:
    """Heartbeats and cold reads wait behind nobody who looks at a hundred thousand partitions."""
    world = Thousand()
    world.announce()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watch = RemoteLogManager(world.parts).watch_partitions()
    async with asyncio.TaskGroup() as group:
        others = group.create_task(count_turns())
        views = await anext(watch)
        others.cancel()
    await watch.aclose()
    assert len(views) == COUNT
    assert turns >= COUNT // 100 - 1


async def test_a_listing_looks_at_partitions_when_it_comes_to_send_them() -> None:
    """Nor does a listing make the views of all of them at once."""
    world = Thousand()
    world.announce()
    pages = view_pages(RemoteLogManager(world.parts).list_partitions())
    first = next(pages)
    world.parts.registry.reconfigure(TIPS[0].topic_id, TopicConfig(retention_ms=7))
    rest = [state for page in pages for state in page]
    assert len(first) + len(rest) == COUNT
    assert {state.config.retention_ms for state in first} == {-1}
    assert {state.config.retention_ms for state in rest} == {7}
