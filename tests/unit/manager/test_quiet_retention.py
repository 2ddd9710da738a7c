"""Metadata is not asked what retention deletes while that cannot be anything (SR-10, SR-11, SR-17)."""

from collections.abc import Sequence

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary, SummariesUnsupportedError
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import START_MS, Fault, SimulatedLog, faulty

KEY = TaskKey(TIP, TaskType.EXPIRATION)
DAY_MS = 24 * 3_600_000
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class WithoutSummaries(InMemoryRemoteLogMetadataManager):
    partition_summaries = None  # type: ignore[assignment]


class OlderService(InMemoryRemoteLogMetadataManager):
    async def partition_summaries(
        self, partitions: Sequence[tuple[TopicIdPartition, int | None]]
    ) -> list[PartitionSummary | None]:
        raise SummariesUnsupportedError("no such method")


def plans(world: TaskWorld) -> int:
    return world.faults.calls.count("list_retention_candidates")


def summaries(world: TaskWorld) -> int:
    return world.faults.calls.count("partition_summaries")


async def quiet(world: TaskWorld, count: int = 3, **config: int) -> SimulatedLog:
    """A partition with remote segments of which an expiration found nothing to delete."""
    log = world.leading(config=TopicConfig(**config))
    world.roll(log, count)
    while (await world.copy()).more_work:
        pass
    assert not (await world.expire()).actions
    return log


async def test_a_partition_with_nothing_to_delete_is_not_asked_about_again(
    world: TaskWorld,
) -> None:
    await quiet(world, retention_ms=DAY_MS)
    before = plans(world), summaries(world)
    for _ in range(5):
        assert not (await world.expire()).actions
    assert (plans(world), summaries(world)) == before


async def test_without_any_segment_metadata_is_not_asked_for_a_plan(world: TaskWorld) -> None:
    world.leading()
    for _ in range(3):
        assert not (await world.expire()).actions
    assert plans(world) == 0


async def test_time_expires_what_was_young(world: TaskWorld) -> None:
    """SR-10: the oldest segment is deleted as soon as its newest record is old enough, confirmed or not."""
    await quiet(world, retention_ms=DAY_MS)
    await world.clock.sleep((START_MS + DAY_MS - world.clock.now_ms()) / 1000 - 1)
    await world.quiet.confirm()
    assert not (await world.expire()).actions
    await world.clock.sleep(2)
    assert len((await world.expire()).actions) == 3


async def test_local_bytes_that_grow_bring_size_retention_about(world: TaskWorld) -> None:
    """SR-11: the size of a log includes what is not remote."""
    log = await quiet(world, retention_bytes=10_000_000)
    asked = plans(world)
    log.local_only_bytes = 10_000_000
    assert len((await world.expire()).actions) == 3
    assert plans(world) == asked + 1


@pytest.mark.parametrize("config", [TopicConfig(retention_ms=0), TopicConfig(retention_bytes=0)])
async def test_changed_retention_is_applied_at_once(world: TaskWorld, config: TopicConfig) -> None:
    await quiet(world)
    world.announce(0, config)
    assert len((await world.expire()).actions) == 3


async def test_a_raised_log_start_is_seen_at_once(world: TaskWorld) -> None:
    """SR-25."""
    log = await quiet(world)
    log.log_start_offset = log.local_log_start_offset = 200
    assert [each.reason for each in (await world.expire()).actions] == [
        "LOG_START_OFFSET_BREACH"
    ] * 2


async def test_what_this_manager_copied_is_seen_at_once(world: TaskWorld) -> None:
    log = await quiet(world)
    size_bytes = log.segments[0].size_bytes
    world.announce(0, TopicConfig(retention_bytes=3 * size_bytes))
    assert not (await world.expire()).actions
    world.roll(log, 2)
    await world.copy()
    assert len((await world.expire()).actions) == 2


async def test_what_somebody_else_changed_is_seen_after_a_confirmation(world: TaskWorld) -> None:
    """A deletion that another manager began is finished by this one."""
    await quiet(world)
    other = await put(Segment(tip=TIP, batches=[batch(300)]), world.storage, world.metadata)
    deleting = RemoteLogSegmentMetadataUpdate(
        segment_id=other.segment_id, event_timestamp_ms=START_MS, state=DELETING, broker_id=1
    )
    await world.metadata.update_remote_log_segment_metadata(deleting)
    assert not (await world.expire()).actions
    await world.quiet.confirm()
    assert [each.reason for each in (await world.expire()).actions] == ["DELETE_UNFINISHED"]


async def test_what_is_not_confirmed_for_long_is_not_trusted(world: TaskWorld) -> None:
    """While metadata cannot be reached runs fail, and so are seen."""
    await quiet(world)
    asked = plans(world)
    world.faults.inject("partition_summaries", Fault(times=2))
    with pytest.raises(RemoteStorageUnavailableError):
        await world.quiet.confirm()
    await world.clock.sleep(100)
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    assert not (await world.expire()).actions
    assert plans(world) == asked + 1


async def test_one_confirmation_keeps_it_quiet(world: TaskWorld) -> None:
    await quiet(world)
    asked = plans(world)
    for _ in range(5):
        await world.clock.sleep(60)
        await world.quiet.confirm()
        assert not (await world.expire()).actions
    assert plans(world) == asked


@pytest.mark.parametrize("role", [WithoutSummaries, OlderService])
async def test_a_role_without_summaries_is_asked_each_time(
    role: type[InMemoryRemoteLogMetadataManager], world: TaskWorld
) -> None:
    """SR-4: an implementation of the role need not have them, nor does an older service."""
    methods = ["list_retention_candidates", "highest_offset_for_epoch"]
    world.metadata = faulty(role, world.faults, methods, clock=world.clock)
    world.restart()
    await quiet(world)
    asked = plans(world)
    assert not (await world.expire()).actions
    assert plans(world) == asked + 1
    assert world.faults.calls.count("highest_offset_for_epoch") == 1
