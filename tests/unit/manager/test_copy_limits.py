"""What keeps copies back: quota, settings, offsets that contradict each other (SR-16, SR-20)."""

import pytest
from aquifer_core.errors import (
    ErrorReason,
    PreconditionError,
)
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld


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
    """KIP-956: a segment larger than the quota passes and delays the next one."""
    world.copy_bytes_per_second = 10
    world.restart()
    log = world.leading()
    world.roll(log, 2)
    size_bytes = log.segments[0].size_bytes
    before = world.clock.monotonic_s()
    await world.copy()
    waited_s = world.clock.monotonic_s() - before
    assert waited_s == pytest.approx((size_bytes - 10) / 10, rel=0.05)


def test_disabled_copying_leaves_the_expiration(world: TaskWorld) -> None:
    """KIP-950: no new copies; reading and expiration go on. A topic that is not tiered has no task at all."""

    def tasks(config: TopicConfig) -> set[str]:
        world.announce(0, config)
        return {key.type.name for key in world.registry.tasks(TIP)}

    assert tasks(TopicConfig()) == {"COPY", "EXPIRATION"}
    assert tasks(TopicConfig(remote_log_copy_disable=True)) == {"EXPIRATION"}
    assert tasks(TopicConfig(remote_storage_enable=False)) == set()
