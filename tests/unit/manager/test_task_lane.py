"""The scheduler's queue (SR-18)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aquifer_core.errors import RemoteResourceNotFoundError, RemoteStorageUnavailableError
from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskState, TaskType
from fixtures.manager_world import SteppedClock, partition, settle
from fixtures.polling import eventually

KEY = TaskKey(partition(), TaskType.COPY)
Runner = Callable[[TaskKey], Awaitable[TaskOutcome]]


class Recorder:
    """Runs what a test says and remembers when."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.times: list[float] = []
        self.keys: list[TaskKey] = []
        self.errors: list[BaseException] = []
        self.outcome = TaskOutcome()

    async def __call__(self, key: TaskKey) -> TaskOutcome:
        self.times.append(round(self.clock.monotonic_s() - 1000.0, 3))
        self.keys.append(key)
        if self.errors:
            raise self.errors.pop(0)
        return self.outcome


@asynccontextmanager
async def scheduling(
    clock: SteppedClock, runner: Runner, *, size: int = 10, run_timeout_s: float = 60.0
) -> AsyncIterator[Scheduler]:
    settings = LaneSettings(
        size=size,
        interval_s=30.0,
        backoff=Backoff(initial_ms=500, max_ms=30_000, jitter=0.0),
        run_timeout_s=run_timeout_s,
    )
    async with Scheduler(
        {TaskType.COPY: runner, TaskType.EXPIRATION: runner},
        dict.fromkeys((TaskType.COPY, TaskType.EXPIRATION), settings),
        clock=clock,
        stop_grace_s=0.05,
    ) as scheduler:
        yield scheduler


def state(scheduler: Scheduler) -> TaskState:
    (found,) = scheduler.states([KEY])
    return found


async def test_a_new_partition_is_due_at_once_and_again_after_the_interval() -> None:
    """SR-7, SR-18: success -> now + task interval."""
    clock = SteppedClock()
    recorder = Recorder(clock)
    async with scheduling(clock, recorder) as scheduler:
        scheduler.set_tasks(KEY.topic_id_partition, {KEY})
        await clock.advance(0)
        assert recorder.times == [0.0]
        await clock.advance(29.9)
        assert recorder.times == [0.0]
        await clock.advance(0.2)
        assert recorder.times == [0.0, 30.0]
        assert state(scheduler).since_success_ms == 100


async def test_failures_back_off_by_doubling_up_to_the_longest_pause() -> None:
    """SR-18: failure -> now + back-off, 500 ms doubling to 30 s; the state tells why."""
    clock = SteppedClock()
    recorder = Recorder(clock)
    recorder.errors = [RemoteStorageUnavailableError("down") for _ in range(9)]
    async with scheduling(clock, recorder) as scheduler:
        scheduler.add(KEY)
        await clock.advance(100)
        assert state(scheduler).consecutive_failures == 9
        assert state(scheduler).last_error_reason == "OBJECT_STORE_UNAVAILABLE"
        await clock.advance(60)
        pauses = [
            round(later - earlier, 3)
            for earlier, later in zip(recorder.times, recorder.times[1:], strict=False)
        ]
        assert pauses[:9] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
        assert state(scheduler).consecutive_failures == 0
        assert state(scheduler).last_error_reason == ""


class Fatal(BaseException):
    """What no handler of Exception catches."""


@pytest.mark.parametrize(
    "error", [ValueError("x"), MemoryError(), Fatal(), asyncio.CancelledError(), TimeoutError()]
)
async def test_a_task_survives_whatever_it_raises(error: BaseException) -> None:
    """T02: an Error in a run leaves the loop alive and the task scheduled."""
    clock = SteppedClock()
    recorder = Recorder(clock)
    recorder.errors = [error]
    async with scheduling(clock, recorder) as scheduler:
        scheduler.add(KEY)
        await clock.advance(1)
        assert recorder.times == [0.0, 0.5]


async def test_more_work_goes_to_the_end_of_the_queue_at_once() -> None:
    clock = SteppedClock()
    recorder = Recorder(clock)
    recorder.outcome = TaskOutcome(more_work=True)
    other = TaskKey(partition(number=1), TaskType.COPY)
    async with scheduling(clock, recorder, size=1) as scheduler:
        scheduler.add(KEY)
        scheduler.add(other)
        await settle(100)
        assert recorder.keys[:4] == [KEY, other, KEY, other]


async def test_a_hanging_copy_blocks_neither_other_copies_nor_the_expiration() -> None:
    """One slow partition cannot starve the rest; kinds of tasks do not share slots."""
    clock = SteppedClock()
    done: list[TaskKey] = []

    async def runner(key: TaskKey) -> TaskOutcome:
        if key == KEY:
            await asyncio.Event().wait()
        done.append(key)
        return TaskOutcome()

    others = [TaskKey(partition(number=number), TaskType.COPY) for number in range(1, 5)]
    expiration = TaskKey(KEY.topic_id_partition, TaskType.EXPIRATION)
    async with scheduling(clock, runner, size=2) as scheduler:
        for key in (KEY, *others, expiration):
            scheduler.add(key)
        await clock.advance(1)
        assert sorted(done) == sorted([*others, expiration])


async def test_a_run_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    """T01: no run hangs for ever."""
    clock = SteppedClock()
    runs = 0

    async def runner(_: TaskKey) -> TaskOutcome:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return TaskOutcome()

    async with scheduling(clock, runner, run_timeout_s=0.01) as scheduler:
        scheduler.add(KEY)
        await eventually(lambda: state(scheduler).last_error_reason)
        assert state(scheduler).last_error_reason == "DEADLINE_EXCEEDED"
        await clock.advance(1)
        assert runs == 2


async def test_a_task_unassigned_while_it_runs_is_dropped_when_the_run_ends() -> None:
    """SR-18, SR-22: the run completes."""
    clock = SteppedClock()
    release = asyncio.Event()
    ended = []

    async def runner(_: TaskKey) -> TaskOutcome:
        await release.wait()
        ended.append(True)
        return TaskOutcome()

    async with scheduling(clock, runner) as scheduler:
        scheduler.add(KEY)
        await clock.advance(0)
        scheduler.set_tasks(KEY.topic_id_partition, set())
        assert state(scheduler).running
        release.set()
        await settle()
        assert ended == [True]
        assert scheduler.states([KEY]) == []
        await clock.advance(100)
        assert ended == [True]


async def test_a_task_assigned_again_while_its_last_run_ends_runs_once_more() -> None:
    clock = SteppedClock()
    release = asyncio.Event()
    running = 0
    most = 0

    async def runner(_: TaskKey) -> TaskOutcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return TaskOutcome()

    async with scheduling(clock, runner) as scheduler:
        scheduler.add(KEY)
        await clock.advance(0)
        scheduler.set_tasks(KEY.topic_id_partition, set())
        scheduler.set_tasks(KEY.topic_id_partition, {KEY})
        await settle()
        release.set()
        await settle()
        assert (most, state(scheduler).runs) == (1, 2)


async def test_a_heartbeat_makes_a_task_due_and_right_after_a_run_under_way() -> None:
    clock = SteppedClock()
    recorder = Recorder(clock)
    async with scheduling(clock, recorder) as scheduler:
        scheduler.add(KEY)
        await clock.advance(10)
        scheduler.due_now([KEY])
        await clock.advance(0)
        assert recorder.times == [0.0, 10.0]
        await clock.advance(29)
        assert recorder.times == [0.0, 10.0]


async def test_run_now_answers_the_result_of_a_run_begun_after_the_call() -> None:
    clock = SteppedClock()
    gate = asyncio.Event()
    outcomes = [TaskOutcome(), TaskOutcome(more_work=True)]

    async def runner(_: TaskKey) -> TaskOutcome:
        await gate.wait()
        return outcomes.pop(0)

    async with scheduling(clock, runner) as scheduler, asyncio.TaskGroup() as group:
        scheduler.add(KEY)
        await clock.advance(0)
        asked = group.create_task(scheduler.run_now(KEY))
        await settle()
        gate.set()
        assert (await asked).more_work
        outcomes.append(TaskOutcome())
        outcomes.append(TaskOutcome())


async def test_run_now_passes_on_what_the_run_failed_with() -> None:
    clock = SteppedClock()
    recorder = Recorder(clock)
    recorder.errors = [RemoteStorageUnavailableError("down")]
    async with scheduling(clock, recorder) as scheduler:
        scheduler.add(KEY)
        with pytest.raises(RemoteStorageUnavailableError, match="down"):
            await scheduler.run_now(KEY)


async def test_run_now_of_an_unknown_task_is_refused() -> None:
    async with scheduling(SteppedClock(), Recorder(SteppedClock())) as scheduler:
        with pytest.raises(RemoteResourceNotFoundError, match="no COPY task"):
            await scheduler.run_now(KEY)


async def test_stopping_lets_runs_end_within_the_grace_and_cancels_the_rest() -> None:
    clock = SteppedClock()
    cancelled = []

    async def runner(_: TaskKey) -> TaskOutcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return TaskOutcome()

    async with scheduling(clock, runner) as scheduler:
        scheduler.add(KEY)
        await clock.advance(0)
    assert cancelled == [True]
