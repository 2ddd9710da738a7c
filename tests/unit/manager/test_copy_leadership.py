"""Copies while leadership moves, managers die, or partitions go (SR-16, SR-22)."""

from collections.abc import Callable

import pytest
from aquifer_core.errors import (
    AquiferError,
    NotLeaderError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import (
    CopyResult,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.tasks import TaskKey, TaskType
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, Killed

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def to_state(state: RemoteLogSegmentState) -> Callable[..., bool]:
    def matches(update: RemoteLogSegmentMetadataUpdate, **_: object) -> bool:
        return update.state is state

    return matches


async def test_a_fenced_copy_is_taken_back_and_the_partition_waits_for_its_leader(
    world: TaskWorld,
) -> None:
    """SR-22, T12: a zombie leader cannot finish a copy; its objects go."""
    log = world.leading()
    world.roll(log, 2)

    async def overtaken(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.metadata.on_partition_leadership_changes({TIP: 5}, [])
        return await world.upload(metadata)

    world.broker.upload = overtaken
    with pytest.raises(StaleLeaderEpochError):
        await world.copy()
    assert await world.listed() == []
    assert world.storage.segment_ids == frozenset()
    calls = len(world.broker.faults.calls)
    with pytest.raises(StaleLeaderEpochError, match="waiting for the leader"):
        await world.copy()
    assert len(world.broker.faults.calls) == calls
    world.broker.upload = world.upload
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(6, 200))
    world.leading(epoch=6)
    await world.copy()
    assert await world.finished() == [(0, 99), (100, 199)]


async def test_a_fence_after_a_finished_that_went_through_keeps_the_segment(
    world: TaskWorld,
) -> None:
    """The history decides what an attempt without answer did."""
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(after=True, times=100, when=to_state(FINISHED)),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    world.faults.by_method.clear()
    await world.metadata.on_partition_leadership_changes({TIP: 5}, [])
    await world.copy()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_copies_in_flight_complete_when_leadership_moves(world: TaskWorld) -> None:
    """SR-22: all that were begun end and commit; the rest of the run is left to the new leader."""
    log = world.leading()
    world.roll(log, 6)

    async def moving(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        world.registry.stop(1, [TIP])
        return await world.upload(metadata)

    world.broker.upload = moving
    outcome = await world.copy()
    assert [a.segment.start_offset for a in outcome.actions] == [0, 100, 200]
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
    assert await world.nothing_dangles()


@pytest.mark.parametrize("epoch", [0, 1], ids=["manager killed", "broker killed too"])
async def test_a_copy_left_by_a_dead_manager_goes_with_the_next_run(
    world: TaskWorld, epoch: int
) -> None:
    """T16: kill -9 during a copy leaves no orphan behind the next run of the tasks."""
    log = world.leading()
    world.roll(log, 1)

    async def killed(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.upload(metadata)
        raise Killed

    world.broker.upload = killed
    with pytest.raises(Killed):
        await world.copy()
    world.restart()
    world.leading(epoch=epoch)
    world.broker.upload = world.upload
    await world.copy()
    await world.expire()
    assert await world.listed() == [(0, 99, "COPY_SEGMENT_FINISHED")]
    assert await world.nothing_dangles()


async def test_a_manager_whose_copy_is_taken_back_by_another_loses_that_copy_only(
    world: TaskWorld,
) -> None:
    """Two managers on one partition by accident: the copy of the first is refused, its objects go, nothing else is harmed."""
    log = world.leading()
    world.roll(log, 1)
    first = world.copy_task

    async def overtaken(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        world.broker.upload = world.upload
        world.restart()
        world.announce(0)
        await world.copy()
        return await world.upload(metadata)

    world.broker.upload = overtaken
    with pytest.raises(AquiferError):
        await first.run(TaskKey(TIP, TaskType.COPY))
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_a_partition_deleted_during_a_copy_leaves_no_objects(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)

    async def deleted_meanwhile(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.deletions.begin(1, [TIP])
        await world.delete_partition()
        return await world.upload(metadata)

    world.broker.upload = deleted_meanwhile
    with pytest.raises(AquiferError):
        await world.copy()
    assert world.storage.segment_ids == frozenset()


async def test_a_broker_that_does_not_lead_is_not_worked_for(world: TaskWorld) -> None:
    """An announcement that comes before the broker's own view is only early: the next run tries again."""
    log = world.leading(epoch=1)
    world.roll(log, 1)
    log.leader = False
    with pytest.raises(NotLeaderError, match="follows it in epoch 1"):
        await world.copy()
    log.leader = True
    await world.copy()
    assert await world.finished() == [(0, 99)]
