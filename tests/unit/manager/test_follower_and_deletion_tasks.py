"""Followers learn of remote offsets (SR-17, SR-21); deleted partitions lose their remote data (T20)."""

import pytest
from aquifer_core.errors import NotLeaderError, RemoteStorageUnavailableError
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.state import RemotePartitionDeleteState
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, SimulatedLog

FOLLOWER = TaskKey(TIP, TaskType.FOLLOWER, 2)


async def following(world: TaskWorld) -> SimulatedLog:
    """Broker 2 follows a partition with three remote segments."""
    leader = world.leading()
    world.roll(leader, 3)
    await world.copy()
    log = world.follower_broker.add(SimulatedLog(TIP, leader=False))
    log.roll(3)
    role = PartitionRole(topic_id_partition=TIP, leader_epoch=0, config=TopicConfig())
    world.registry.follow(2, [role])
    return log


async def test_a_follower_learns_the_highest_remote_offset_and_the_log_start(
    world: TaskWorld,
) -> None:
    """SR-17: the log start comes from what the leader recorded."""
    log = await following(world)
    await world.metadata.update_earliest_log_offset(TIP, 100, 0)
    await world.follower_task.run(FOLLOWER)
    assert (log.highest_remote_offset, log.log_start_offset) == (299, 100)


async def test_a_follower_is_bounded_by_its_own_lineage(world: TaskWorld) -> None:
    """K-3.2: what its epochs do not hold is not remote for it."""
    log = await following(world)
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 150))
    await world.follower_task.run(FOLLOWER)
    assert log.highest_remote_offset == 149


async def test_a_follower_with_another_epoch_waits_for_its_announcement(world: TaskWorld) -> None:
    log = await following(world)
    log.leader_epoch = 3
    with pytest.raises(NotLeaderError):
        await world.follower_task.run(FOLLOWER)
    assert log.highest_remote_offset == -1


async def test_a_broker_that_no_longer_follows_has_nothing_to_do(world: TaskWorld) -> None:
    await following(world)
    world.registry.stop(2, [TIP])
    before = len(world.follower_broker.faults.calls)
    await world.follower_task.run(FOLLOWER)
    assert len(world.follower_broker.faults.calls) == before


async def deleting(world: TaskWorld, segments: int) -> None:
    log = world.leading()
    world.roll(log, segments)
    await world.copy()
    world.registry.stop(1, [TIP])
    world.journal.begin({TIP: 1})


async def test_a_partition_is_deleted_in_bounded_runs(world: TaskWorld) -> None:
    await deleting(world, 10)
    runs = [await world.delete_partition() for _ in range(3)]
    assert [(len(run.actions), run.more_work, run.finished) for run in runs] == [
        (4, True, False),
        (4, True, False),
        (2, False, True),
    ]
    assert world.storage.segment_ids == frozenset()
    assert world.journal.begun() == {}


@pytest.mark.parametrize(
    ("method", "times"),
    [
        ("put_remote_partition_delete_metadata", 1),
        ("put_remote_partition_delete_metadata", 2),
        ("update_remote_log_segment_metadata", 1),
        ("delete_log_segment_data", 1),
        ("delete_log_segment_data", 3),
    ],
)
@pytest.mark.parametrize("after", [False, True])
async def test_a_deletion_that_fails_anywhere_goes_on_also_in_another_process(
    world: TaskWorld, method: str, times: int, after: bool
) -> None:
    """T20: the job is resumable at any point."""
    await deleting(world, 3)
    world.faults.inject(method, Fault(times=times, after=after))
    for _ in range(10):
        try:
            outcome = await world.delete_partition()
        except RemoteStorageUnavailableError:
            world.restart()
        else:
            break
    assert outcome.finished
    assert world.storage.segment_ids == frozenset()
    assert world.journal.begun() == {}


async def test_the_steps_are_recorded_in_order(world: TaskWorld) -> None:
    await deleting(world, 1)
    await world.delete_partition()
    changes = world.metadata.watch_partition(TIP, from_version=1)
    states = []
    async for change in changes:
        if change.delete_state is not None:
            states.append(change.delete_state)
        if change.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            break
    assert [state.name for state in states] == [
        "DELETE_PARTITION_MARKED",
        "DELETE_PARTITION_STARTED",
        "DELETE_PARTITION_FINISHED",
    ]


async def test_a_deletion_that_had_finished_finishes_again(world: TaskWorld) -> None:
    """Idempotent: a broker may repeat StopPartitions."""
    await deleting(world, 1)
    await world.delete_partition()
    world.journal.begin({TIP: 1})
    assert (await world.delete_partition()).finished
    assert world.journal.begun() == {}
