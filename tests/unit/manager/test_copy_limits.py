"""What keeps copies back: quota, settings, offsets that contradict each other (SR-16, SR-20)."""

import pytest
from aquifer_core.errors import (
    ErrorReason,
    PreconditionError,
)
from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.copy_turns import CopyTurns
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.task_lane import LaneSettings
from aquifer_manager.domain.tasks import Deferral, TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why_reasons import WhyQuestion, WhyReason
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import HastyClock, SteppedClock, partition
from fixtures.polling import eventually


async def test_offsets_that_contradict_each_other_defer_the_copy(world: TaskWorld) -> None:
    """SR-20: a violation is counted, carries the five offsets, and nothing is copied."""
    log = world.leading()
    world.roll(log, 2)
    log.log_end_offset = 150
    with pytest.raises(PreconditionError, match="last_stable <= log_end") as raised:
        await world.copy()
    assert raised.value.reason is ErrorReason.OFFSET_CONSTRAINT
    assert raised.value.metadata == {
        "log_start": "0",
        "local_log_start": "0",
        "highest_remote": "-1",
        "last_stable": "200",
        "log_end": "150",
    }
    assert world.registry.require(TIP).work.constraint_violations == 1
    assert await world.listed() == []


async def test_the_copy_quota_delays_what_follows_a_large_segment(world: TaskWorld) -> None:
    """KIP-956: a segment larger than the quota passes and delays the next one. The run does not wait for that."""
    world.copy_bytes_per_second = 10
    world.restart()
    log = world.leading()
    world.roll(log, 2)
    size_bytes = log.segments[0].size_bytes
    before_s = world.clock.monotonic_s()
    outcome = await world.copy()
    assert [each.segment.start_offset for each in outcome.actions] == [0]
    assert outcome.deferred is Deferral.COPY_QUOTA
    assert outcome.retry_in_s == pytest.approx((size_bytes - 10) / 10, rel=0.05)
    assert world.clock.monotonic_s() == before_s
    early = await world.copy()
    assert not early.actions
    assert early.retry_in_s == pytest.approx(outcome.retry_in_s, rel=0.05)
    assert early.retry_in_s is not None
    await world.clock.sleep(early.retry_in_s + 0.001)
    late = await world.copy()
    assert [each.segment.start_offset for each in late.actions] == [100]
    assert late.deferred is None


def tips(count: int) -> list[TaskKey]:
    return [TaskKey(partition(number=number), TaskType.COPY) for number in range(count)]


async def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    clock = HastyClock()
    turns = CopyTurns(
        ByteQuota(100, reason=ErrorReason.COPY_QUOTA, clock=clock, window_s=1.0), clock=clock
    )
    keys = tips(4)
    waits = [turns.wait_s(key, 300) for key in keys]
    assert waits == pytest.approx([0.0, 2.01, 5.01, 8.01])
    await clock.sleep(2.5)
    assert turns.wait_s(keys[3], 300) == pytest.approx(5.51)
    assert turns.wait_s(keys[2], 300) == pytest.approx(2.51)
    assert turns.wait_s(keys[1], 300) == 0.0
    assert turns.wait_s(keys[1], 300) == pytest.approx(8.51), "the next turn is the last one"


async def test_a_turn_that_is_not_used_is_given_back() -> None:
    clock = HastyClock()
    turns = CopyTurns(
        ByteQuota(100, reason=ErrorReason.COPY_QUOTA, clock=clock, window_s=1.0), clock=clock
    )
    first, gone, last = tips(3)
    assert turns.wait_s(first, 200) == 0.0
    assert turns.wait_s(gone, 1_000_000) > 0
    await clock.sleep(100)
    assert turns.wait_s(last, 100) == 0.0


async def test_whoever_waits_for_the_quota_holds_no_place(world: TaskWorld) -> None:
    """Its place at the broker and its slot of the lane are free for others, and `why` tells what it waits for."""
    world.copy_bytes_per_second = 10
    world.restart()
    log = world.leading()
    world.roll(log, 2)
    key, clock = TaskKey(TIP, TaskType.COPY), SteppedClock()
    lane = LaneSettings(
        size=1,
        interval_s=30.0,
        backoff=Backoff(initial_ms=100, max_ms=100, jitter=0.0),
        run_timeout_s=60.0,
    )
    world.scheduler = Scheduler(
        {TaskType.COPY: world.copy_task.run}, {TaskType.COPY: lane}, clock=clock, stop_grace_s=0.1
    )
    world.scheduler.add(key)
    async with world.scheduler:
        await eventually(lambda: world.scheduler.states([key])[0].deferred, timeout_s=60)
        (state,) = world.scheduler.states([key])
        assert (state.running, state.runs) == (False, 1)
        assert state.deferred is Deferral.COPY_QUOTA
        for number in range(8):
            other = TaskKey(partition(number=number + 10), TaskType.COPY)
            with world.uploads.run_at("leader", other) as may_run:
                assert may_run
        answers = await world.explainer().explain_offset(TIP, 110)
        assert [each.reason for each in answers if each.question is WhyQuestion.STILL_LOCAL] == [
            WhyReason.WAITING_FOR_COPY_QUOTA
        ]
        wait_s = state.next_run_in_ms / 1000
        await world.clock.sleep(wait_s + 1)
        await clock.advance(wait_s + 1)
        await eventually(lambda: len(world.broker.uploads) == 2, timeout_s=60)


def test_disabled_copying_leaves_the_expiration(world: TaskWorld) -> None:
    """KIP-950: no new copies; reading and expiration go on. A topic that is not tiered has no task at all."""

    def tasks(config: TopicConfig) -> set[str]:
        world.announce(0, config)
        return {key.type.name for key in world.registry.tasks(TIP)}

    assert tasks(TopicConfig()) == {"COPY", "EXPIRATION"}
    assert tasks(TopicConfig(remote_log_copy_disable=True)) == {"EXPIRATION"}
    assert tasks(TopicConfig(remote_storage_enable=False)) == set()
