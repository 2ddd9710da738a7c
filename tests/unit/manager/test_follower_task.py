"""Followers learn of remote offsets (SR-17, SR-21)."""

import pytest
from aquifer_core.errors import NotLeaderError
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import SimulatedLog

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
