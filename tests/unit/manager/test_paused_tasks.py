"""Pauses are facts of metadata: they outlive managers, and nothing begins before they are known (decision 36)."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.task_pauses import PausesUnsupportedError, PauseTarget, TaskPause
from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.paused_tasks import PausedTasks
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from fixtures.manager_world import SteppedClock, partition

TIP = partition()
KEY = TaskKey(TIP, TaskType.EXPIRATION)


class Facts(InMemoryRemoteLogMetadataManager):
    """Metadata that can be down, or too old to keep pauses, or slow to list them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.too_old = False
        self.listings = 0
        self.hold: asyncio.Event | None = None

    async def list_task_pauses(self) -> AsyncIterator[TaskPause]:
        self._check()
        self.listings += 1
        found = [each async for each in super().list_task_pauses()]
        if self.hold is not None:
            await self.hold.wait()
        for each in found:
            yield each

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> None:
        self._check()
        await super().pause_tasks(targets, paused_by=paused_by, reason=reason)

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> None:
        self._check()
        await super().resume_tasks(targets)

    def _check(self) -> None:
        if self.down:
            raise RemoteStorageUnavailableError("metadata is down")
        if self.too_old:
            raise PausesUnsupportedError("too old")


class OneManager:
    """A manager's scheduler over metadata; counts the runs of its tasks."""

    def __init__(self, metadata: Facts, clock: SteppedClock, *tasks: TaskKey) -> None:
        self.pauses = PausedTasks(metadata, clock=clock, fresh_for_s=30.0)
        self.runs: list[TaskKey] = []
        settings = LaneSettings(
            size=10,
            interval_s=30.0,
            backoff=Backoff(initial_ms=500, max_ms=30_000, jitter=0.0),
            run_timeout_s=60.0,
        )
        kinds = (TaskType.COPY, TaskType.EXPIRATION, TaskType.PARTITION_DELETION)
        self.scheduler = Scheduler(
            dict.fromkeys(kinds, self._run),
            dict.fromkeys(kinds, settings),
            clock=clock,
            stop_grace_s=0.05,
            gate=self.pauses,
        )
        self.pauses.watch(self._resumed)
        for task in tasks or (KEY,):
            self.scheduler.add(task)

    async def _run(self, key: TaskKey) -> TaskOutcome:
        self.runs.append(key)
        return TaskOutcome()

    def _resumed(self, targets: Collection[PauseTarget]) -> None:
        del targets
        self.scheduler.resumed([TIP])


@asynccontextmanager
async def managing(
    metadata: Facts, clock: SteppedClock, *tasks: TaskKey
) -> AsyncIterator[OneManager]:
    manager = OneManager(metadata, clock, *tasks)
    async with manager.scheduler:
        yield manager


@pytest.mark.parametrize("target", [TIP, TIP.topic])
async def test_a_pause_holds_at_a_manager_that_starts_later(target: PauseTarget) -> None:
    metadata, clock = Facts(), SteppedClock()
    await metadata.pause_tasks([target], paused_by="ann", reason="a loss")
    async with managing(metadata, clock) as manager:
        await clock.advance(100)
        assert manager.runs == []
        (known,) = manager.pauses.of(TIP)
        assert (known.target, known.paused_by, known.reason) == (target, "ann", "a loss")


async def test_a_pause_reaches_other_managers_within_their_interval_and_so_does_its_end() -> None:
    metadata, clock = Facts(), SteppedClock()
    async with managing(metadata, clock) as told, managing(metadata, clock) as other:
        await clock.advance(1)
        assert (len(told.runs), len(other.runs)) == (1, 1)
        assert await told.pauses.pause([TIP])
        await clock.advance(300)
        assert (len(told.runs), len(other.runs)) == (1, 1)
        assert await told.pauses.resume([TIP])
        await other.pauses.look()
        await clock.advance(1)
        assert (len(told.runs), len(other.runs)) == (2, 2)


async def test_nothing_begins_before_metadata_has_been_asked() -> None:
    metadata, clock = Facts(), SteppedClock()
    metadata.down = True
    async with managing(metadata, clock) as manager:
        await clock.advance(10)
        assert manager.runs == []
        (state,) = manager.scheduler.states([KEY])
        assert state.last_error == "metadata is down"
        metadata.down = False
        await clock.advance(31)
        assert manager.runs


async def test_what_is_known_stays_known_while_metadata_is_down_and_nothing_begins_on_old_knowledge() -> (
    None
):
    """A pause that was made during an outage of ours must not be missed after it."""
    metadata, clock = Facts(), SteppedClock()
    async with managing(metadata, clock) as manager:
        await clock.advance(1)
        await manager.pauses.pause(["other topic"])
        metadata.down = True
        with pytest.raises(RemoteStorageUnavailableError):
            await manager.pauses.look()
        assert manager.pauses.holds(partition("other topic"))
        await clock.advance(31)
        known = len(manager.runs)
        await clock.advance(200)
        assert len(manager.runs) == known
        metadata.down = False
        await metadata.pause_tasks([TIP])
        await clock.advance(200)
        assert len(manager.runs) == known


async def test_many_tasks_share_one_question_an_interval() -> None:
    metadata, clock = Facts(), SteppedClock()
    keys = [
        TaskKey(partition(number=number), kind)
        for number in range(8)
        for kind in (TaskType.COPY, TaskType.EXPIRATION)
    ]
    async with managing(metadata, clock, *keys) as manager:
        await clock.advance(91)
        assert len(manager.runs) >= 3 * len(keys)
        assert metadata.listings == 4


async def test_a_paused_task_runs_when_asked_and_goes_on_when_resumed() -> None:
    metadata, clock = Facts(), SteppedClock()
    async with managing(metadata, clock) as manager:
        await manager.pauses.pause([TIP.topic, TIP])
        await clock.advance(100)
        assert manager.runs == []
        await manager.scheduler.run_now(KEY)
        await clock.advance(100)
        assert len(manager.runs) == 1
        await manager.pauses.resume([TIP])
        await clock.advance(100)
        assert len(manager.runs) == 1
        await manager.pauses.resume([TIP.topic])
        await clock.advance(0)
        assert len(manager.runs) == 2


async def test_a_task_asked_for_while_it_finds_out_that_it_is_paused_runs_all_the_same() -> None:
    metadata, clock = Facts(), SteppedClock()
    await metadata.pause_tasks([TIP])
    metadata.hold = asyncio.Event()
    async with managing(metadata, clock) as manager:
        await clock.advance(0)
        async with asyncio.TaskGroup() as asking:
            asking.create_task(manager.scheduler.run_now(KEY))
            await clock.advance(0)
            assert manager.runs == []
            metadata.hold.set()
        assert len(manager.runs) == 1
        (state,) = manager.scheduler.states([KEY])
        assert (state.runs, state.consecutive_failures) == (1, 0)


async def test_partition_deletions_are_never_paused() -> None:
    metadata, clock = Facts(), SteppedClock()
    deletion = TaskKey(TIP, TaskType.PARTITION_DELETION)
    async with managing(metadata, clock, deletion) as manager:
        await manager.pauses.pause([TIP, TIP.topic])
        await clock.advance(31)
        assert len(manager.runs) == 2


async def test_a_pause_is_not_undone_by_a_listing_that_began_before_it() -> None:
    metadata, clock = Facts(), SteppedClock()
    pauses = PausedTasks(metadata, clock=clock, fresh_for_s=30.0)
    metadata.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(pauses.look())
        await clock.advance(0)
        pause = group.create_task(pauses.pause([TIP]))
        await clock.advance(0)
        assert pauses.holds(TIP)
        metadata.hold.set()
    assert pause.result()
    assert pauses.holds(TIP)


async def test_what_metadata_could_not_be_told_is_paused_here_and_the_operator_hears_of_it() -> (
    None
):
    metadata, clock = Facts(), SteppedClock()
    pauses = PausedTasks(metadata, clock=clock, fresh_for_s=30.0)
    metadata.down = True
    with pytest.raises(RemoteStorageUnavailableError, match="paused at this manager only"):
        await pauses.pause([TIP])
    assert pauses.holds(TIP)
    metadata.down = False
    await pauses.look()
    assert pauses.holds(TIP)
    assert await pauses.pause([TIP])
    metadata.down = True
    with pytest.raises(RemoteStorageUnavailableError, match="paused as before"):
        await pauses.resume([TIP])
    assert pauses.holds(TIP)
    metadata.down = False
    assert await pauses.resume([TIP])
    assert not pauses.holds(TIP)
    await pauses.look()
    assert not pauses.holds(TIP)


async def test_metadata_of_an_older_version_leaves_pauses_in_memory_and_says_so() -> None:
    """Mixed versions: tasks run, pauses work, and nobody believes that they are durable."""
    metadata, clock = Facts(), SteppedClock()
    metadata.too_old = True
    async with managing(metadata, clock) as manager:
        await clock.advance(1)
        assert len(manager.runs) == 1
        assert not await manager.pauses.pause([TIP])
        await clock.advance(100)
        assert len(manager.runs) == 1
        assert not await manager.pauses.resume([TIP])
        await clock.advance(1)
        assert len(manager.runs) == 2


async def test_an_older_replica_of_metadata_does_not_make_a_known_pause_forgotten() -> None:
    metadata, clock = Facts(), SteppedClock()
    pauses = PausedTasks(metadata, clock=clock, fresh_for_s=30.0)
    assert await pauses.pause([TIP])
    metadata.too_old = True
    await pauses.look()
    assert pauses.holds(TIP)
