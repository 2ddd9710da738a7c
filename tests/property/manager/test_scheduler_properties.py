"""What holds of the scheduler whatever happens (SR-18); never more runs at once than the size of its pool (SR-6)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from fixtures.manager_world import SteppedClock, partition, settle
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = [TaskKey(partition(number=number), TaskType.COPY) for number in range(5)]
INTERVAL_S = 30.0
LONGEST_BACKOFF_S = 8.0

numbers = st.integers(0, len(KEYS) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), numbers),
        st.tuples(st.just("unassign"), numbers),
        st.tuples(st.just("heartbeat"), numbers),
        st.tuples(st.just("begin to fail"), numbers),
        st.tuples(st.just("begin to succeed"), numbers),
        st.tuples(st.just("begin to hang"), numbers),
        st.tuples(st.just("release"), numbers),
        st.tuples(st.just("advance"), st.integers(0, 40)),
    ),
    max_size=40,
)


class Model:
    """Runs that behave as told, and what was seen of them."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.behaviour: dict[TaskKey, str] = {}
        self.gates: dict[TaskKey, asyncio.Event] = {}
        self.running: Counter[TaskKey] = Counter()
        self.most = 0
        self.last_end_s: dict[TaskKey, float] = {}
        self.failures: Counter[TaskKey] = Counter()

    async def __call__(self, key: TaskKey) -> TaskOutcome:
        self.running[key] += 1
        self.most = max(self.most, self.running.total())
        assert self.running[key] == 1, "two runs of one task at the same time"
        try:
            if self.behaviour.get(key) == "hang":
                await self.gates.setdefault(key, asyncio.Event()).wait()
            if self.behaviour.get(key) == "fail":
                self.failures[key] += 1
                raise RemoteStorageUnavailableError("told to")
            return TaskOutcome()
        finally:
            self.running[key] -= 1
            self.last_end_s[key] = self.clock.monotonic_s()


def run(size: int, body: Callable[[Scheduler, Model, SteppedClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = SteppedClock()
        model = Model(clock)
        lane = LaneSettings(
            size=size,
            interval_s=INTERVAL_S,
            backoff=Backoff(initial_ms=500, max_ms=int(LONGEST_BACKOFF_S * 1000), jitter=0.0),
            run_timeout_s=1000.0,
        )
        scheduler = Scheduler(
            {TaskType.COPY: model}, {TaskType.COPY: lane}, clock=clock, stop_grace_s=0.0
        )
        async with scheduler:
            await body(scheduler, model, clock)

    asyncio.run(main())


async def take(
    step: tuple[str, int], scheduler: Scheduler, model: Model, clock: SteppedClock
) -> None:
    name, number = step
    if name == "advance":
        await clock.advance(number)
        return
    key = KEYS[number]
    match name:
        case "assign":
            scheduler.set_tasks(key.topic_id_partition, {key})
        case "unassign":
            scheduler.set_tasks(key.topic_id_partition, set())
        case "heartbeat":
            scheduler.due_now([key])
        case "begin to fail":
            model.behaviour[key] = "fail"
        case "begin to succeed":
            model.behaviour[key] = "succeed"
        case "begin to hang":
            model.behaviour[key] = "hang"
        case "release":
            model.behaviour.pop(key, None)
            model.gates.pop(key, asyncio.Event()).set()
    await settle()


@settings(max_examples=150, deadline=None)
@given(steps=steps, size=st.integers(1, 5))
def test_one_run_at_a_time_a_bounded_number_at_once_and_no_task_is_ever_lost(
    steps: list[tuple[str, int]], size: int
) -> None:
    async def body(scheduler: Scheduler, model: Model, clock: SteppedClock) -> None:
        assigned: set[TaskKey] = set()
        for step in steps:
            await take(step, scheduler, model, clock)
            name, number = step
            if name == "assign":
                assigned.add(KEYS[number])
            elif name == "unassign":
                assigned.discard(KEYS[number])
            assert model.most <= size
            for state in scheduler.states(sorted(assigned)):
                due = 0 <= state.next_run_in_ms <= INTERVAL_S * 1000
                assert state.running or due, f"{state} will never run again"
            assert {state.key for state in scheduler.states(KEYS)} >= assigned
        gates, model.gates, model.behaviour = model.gates, {}, {}
        for gate in gates.values():
            gate.set()
        await clock.advance(INTERVAL_S + 1)
        assert {state.key for state in scheduler.states(KEYS)} == assigned
        for state in scheduler.states(KEYS):
            assert state.consecutive_failures == 0
            assert 0 <= state.since_success_ms <= (INTERVAL_S + 1) * 1000

    run(size, body)


@settings(max_examples=50, deadline=None)
@given(hanging=st.integers(0, 3), intervals=st.integers(1, 4))
def test_partitions_that_hang_do_not_delay_the_others(hanging: int, intervals: int) -> None:
    """One slow partition cannot starve the rest, as long as a slot is left."""

    async def body(scheduler: Scheduler, model: Model, clock: SteppedClock) -> None:
        for key in KEYS[:hanging]:
            model.behaviour[key] = "hang"
        for key in KEYS:
            scheduler.add(key)
        await clock.advance(intervals * INTERVAL_S + 1)
        for state in scheduler.states(KEYS[hanging:]):
            assert state.runs == intervals + 1

    run(hanging + 1, body)


@settings(max_examples=50, deadline=None)
@given(failing_s=st.integers(0, 200))
def test_a_failed_task_is_tried_again_within_the_longest_back_off(failing_s: int) -> None:
    async def body(scheduler: Scheduler, model: Model, clock: SteppedClock) -> None:
        key = KEYS[0]
        model.behaviour[key] = "fail"
        scheduler.add(key)
        await clock.advance(failing_s)
        model.behaviour[key] = "succeed"
        await clock.advance(LONGEST_BACKOFF_S)
        (state,) = scheduler.states([key])
        assert state.consecutive_failures == 0
        assert state.since_success_ms >= 0

    run(1, body)
