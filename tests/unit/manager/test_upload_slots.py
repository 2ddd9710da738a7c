"""Uploads of one broker have so many places, and one that stands still lends its slot of the lane (SR-18)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aquifer_core.ports import Clock
from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import Deferral, TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.upload_slots import UploadSlots
from fixtures.manager_world import SteppedClock, partition, settle

STALLED_AFTER_S = 5.0
LANE = 4


class Uploads:
    """Copy runs of a few brokers: those of `frozen` brokers send nothing until they are let go."""

    def __init__(self, clock: Clock, *, per_broker: int) -> None:
        self.slots = UploadSlots(
            per_broker=per_broker, stalled_after_s=STALLED_AFTER_S, clock=clock
        )
        self.frozen: set[str] = set()
        self.thawed = asyncio.Event()
        self.done: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __call__(self, key: TaskKey) -> TaskOutcome:
        broker = key.topic_id_partition.topic
        with self.slots.run_at(broker, key) as may_run:
            if not may_run:
                return TaskOutcome(deferred=Deferral.BROKER_PLACES)
            self.running[broker] += 1
            self.most[broker] = max(self.most[broker], self.running[broker])
            try:
                async with self.slots.upload() as upload:
                    upload.sent(1)
                    if broker in self.frozen:
                        await self.thawed.wait()
                    upload.sent(2)
            finally:
                self.running[broker] -= 1
            self.done[broker] += 1
        return TaskOutcome()


@asynccontextmanager
async def scheduling(clock: SteppedClock, uploads: Uploads) -> AsyncIterator[Scheduler]:
    settings = LaneSettings(
        size=LANE,
        interval_s=30.0,
        backoff=Backoff(initial_ms=500, max_ms=30_000, jitter=0.0),
        run_timeout_s=3600.0,
    )
    scheduler = Scheduler(
        {TaskType.COPY: uploads},
        {TaskType.COPY: settings},
        clock=clock,
        stop_grace_s=0.05,
        lent={TaskType.COPY: uploads.slots.lent},
    )
    uploads.slots.watch(
        on_free=lambda key: scheduler.due_now([key]),
        on_lent=lambda: scheduler.wake(TaskType.COPY),
    )
    async with scheduler:
        yield scheduler


def keys(broker: str, count: int) -> list[TaskKey]:
    return [TaskKey(partition(broker, number), TaskType.COPY) for number in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await settle(5)
    raise AssertionError("it did not come to that")


async def test_copies_of_a_frozen_broker_do_not_hold_all_slots() -> None:
    clock = SteppedClock()
    uploads = Uploads(clock, per_broker=3)
    uploads.frozen.add("frozen")
    async with scheduling(clock, uploads) as scheduler:
        for key in (*keys("frozen", 20), *keys("well", 20)):
            scheduler.add(key)
        # Three of the four slots hang; the fourth serves everybody else.
        await until(lambda: uploads.done["well"] == 20)
        assert uploads.most["frozen"] == 3
        assert uploads.done["frozen"] == 0
        uploads.thawed.set()
        await until(lambda: uploads.done["frozen"] == 20)
        assert uploads.most["frozen"] == 3


async def test_a_lane_full_of_uploads_that_stand_still_serves_others_after_a_moment() -> None:
    clock = SteppedClock()
    uploads = Uploads(clock, per_broker=LANE)
    uploads.frozen.add("frozen")
    async with scheduling(clock, uploads) as scheduler:
        for key in (*keys("frozen", LANE + 2), *keys("well", 20)):
            scheduler.add(key)
        await settle(200)
        assert uploads.done["well"] == 0
        assert uploads.slots.stalled() == 0
        await clock.advance(STALLED_AFTER_S + 0.1)
        await until(lambda: uploads.done["well"] == 20)
        assert uploads.slots.stalled() == LANE
        assert uploads.most["frozen"] == LANE
        uploads.thawed.set()
        await until(lambda: uploads.done["frozen"] == LANE + 2)
        assert uploads.slots.stalled() == 0


async def test_an_upload_that_moves_again_takes_its_slot_back() -> None:
    clock = SteppedClock()
    slots = UploadSlots(per_broker=1, stalled_after_s=STALLED_AFTER_S, clock=clock)
    changes: list[int] = []
    slots.watch(on_free=lambda _: None, on_lent=lambda: changes.append(slots.stalled()))
    async with slots.upload() as upload:
        await clock.advance(STALLED_AFTER_S + 0.1)
        assert slots.stalled() == 1
        upload.sent(100)
        await clock.advance(STALLED_AFTER_S / 2)
        assert slots.stalled() == 0
        for sent in range(101, 120):
            upload.sent(sent)
            await clock.advance(STALLED_AFTER_S / 2)
        assert changes == [1, 0]
        await clock.advance(2 * STALLED_AFTER_S)
        assert slots.stalled() == 1
    assert slots.stalled() == 0
    assert changes == [1, 0, 1, 0]


async def test_a_run_that_is_asked_for_waits_for_a_place_and_answers_its_own_result() -> None:
    clock = SteppedClock()
    uploads = Uploads(clock, per_broker=1)
    uploads.frozen.add("frozen")
    first, second = keys("frozen", 2)
    async with scheduling(clock, uploads) as scheduler:
        scheduler.add(first)
        await until(lambda: uploads.running["frozen"] == 1)
        scheduler.add(second)
        asked = asyncio.create_task(scheduler.run_now(second))
        await settle(200)
        (state,) = scheduler.states([second])
        assert state.deferred
        assert (state.since_success_ms, state.consecutive_failures) == (-1, 0)
        assert not asked.done()
        uploads.thawed.set()
        assert await asked == TaskOutcome()
        (state,) = scheduler.states([second])
        assert not state.deferred


async def test_a_further_place_is_given_only_while_nobody_waits_for_one() -> None:
    clock = SteppedClock()
    slots = UploadSlots(per_broker=3, stalled_after_s=STALLED_AFTER_S, clock=clock)
    called: list[TaskKey] = []
    room = [True]
    slots.watch(on_free=called.append, on_lent=lambda: None, has_room=lambda: room[0])
    behind, second, third, late = keys("broker", 4)
    with slots.run_at("broker", behind) as may_run, slots.run_at("broker", second):
        assert may_run
        further = slots.further_place("broker")
        assert further is not None
        assert slots.further_place("broker") is None, "three places, three taken"
        assert slots.lent() == -1
        with slots.run_at("broker", third) as third_may_run:
            assert not third_may_run
        further.leave()
        further.leave()
        assert (slots.lent(), called) == (0, [third])
        assert slots.further_place("broker") is None, "the third is on its way to its place"
        with slots.run_at("broker", third) as third_may_run:
            assert third_may_run
            with slots.run_at("broker", late) as late_may_run:
                assert not late_may_run
        assert called == [third, late]
        assert slots.further_place("broker") is None
        await clock.advance(10)
        room[0] = False
        assert slots.further_place("broker") is None, "a task waits for a slot of the lane"
        room[0] = True
        place = slots.further_place("broker")
        assert place is not None, "a task that did not come, paused or gone, holds nothing up"
        place.leave()
    assert slots.lent() == 0
