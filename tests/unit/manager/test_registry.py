"""Brokers, leases, leadership (SR-15, SR-22)."""

import pytest
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError, StaleLeaderEpochError
from aquifer_core.ids import TopicIdPartition
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_world import SteppedClock, partition

TIP = partition()
OTHER = partition(number=1)


def role(epoch: int, tip: TopicIdPartition = TIP, **config: bool) -> PartitionRole:
    return PartitionRole(topic_id_partition=tip, leader_epoch=epoch, config=TopicConfig(**config))


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def registry(clock: SteppedClock) -> Registry:
    made = Registry(lease_ms=10_000, clock=clock)
    made.register(1, "one", "host1:1")
    made.register(2, "two", "host2:1")
    return made


def tasks(registry: Registry) -> set[str]:
    return {f"{key.type.name} {key.broker_id}" for key in registry.tasks(TIP)}


def test_leaders_copy_and_expire_and_followers_follow(registry: Registry) -> None:
    registry.lead(1, [role(3)])
    registry.follow(2, [role(3)])
    assert tasks(registry) == {"COPY -1", "EXPIRATION -1", "FOLLOWER 2"}


def test_lower_leader_epochs_are_ignored(registry: Registry) -> None:
    registry.lead(2, [role(5)])
    assert registry.lead(1, [role(4)]) == set()
    assert registry.follow(1, [role(4)]) == set()
    leader = registry.leader(TIP)
    assert leader is not None
    assert (leader.broker_id, leader.leader_epoch, leader.address) == (2, 5, "host2:1")


def test_a_leader_that_becomes_a_follower_no_longer_copies(registry: Registry) -> None:
    registry.lead(1, [role(3)])
    registry.follow(1, [role(4)])
    assert tasks(registry) == {"FOLLOWER 1"}


def test_a_follower_with_a_higher_epoch_tells_that_the_leader_is_gone(registry: Registry) -> None:
    registry.lead(1, [role(3)])
    registry.follow(2, [role(4)])
    assert tasks(registry) == {"FOLLOWER 2"}


def test_a_follower_that_becomes_the_leader_no_longer_follows(registry: Registry) -> None:
    registry.follow(1, [role(3)])
    registry.lead(1, [role(4)])
    assert tasks(registry) == {"COPY -1", "EXPIRATION -1"}


def test_another_incarnation_begins_without_partitions(registry: Registry) -> None:
    registry.lead(1, [role(3), role(3, OTHER)])
    assert registry.register(1, "one", "host1:1") == set()
    assert registry.register(1, "one again", "host1:2") == {TIP, OTHER}
    assert registry.tasks(TIP) == set()
    with pytest.raises(RemoteResourceNotFoundError) as raised:
        registry.keep(1, "one")
    assert raised.value.reason is ErrorReason.BROKER_NOT_FOUND


async def test_a_lease_that_is_not_renewed_ends(registry: Registry, clock: SteppedClock) -> None:
    registry.lead(1, [role(3)])
    await clock.advance(9)
    registry.keep(2, "two")
    await clock.advance(2)
    gone, changed = registry.expire()
    assert ([broker.broker_id for broker in gone], changed) == ([1], {TIP})
    assert registry.get(TIP) is None
    with pytest.raises(RemoteResourceNotFoundError):
        registry.keep(1, "one")
    registry.keep(2, "two")


async def test_a_lease_that_has_ended_is_not_renewed_before_it_is_swept(
    registry: Registry, clock: SteppedClock
) -> None:
    await clock.advance(11)
    with pytest.raises(RemoteResourceNotFoundError):
        registry.keep(1, "one")


def test_stopping_one_broker_leaves_the_others(registry: Registry) -> None:
    registry.lead(1, [role(3)])
    registry.follow(2, [role(3)])
    registry.stop(1, [TIP])
    assert tasks(registry) == {"FOLLOWER 2"}
    registry.stop(2, [TIP])
    assert registry.get(TIP) is None
    assert registry.stop(2, [TIP]) == set()


def test_settings_of_a_topic_reach_all_its_partitions(registry: Registry) -> None:
    registry.lead(1, [role(3), role(3, OTHER), role(3, partition("logs"))])
    config = TopicConfig(remote_storage_enable=False)
    assert registry.reconfigure(TIP.topic_id, config) == {TIP, OTHER}
    assert registry.tasks(TIP) == set()
    assert registry.tasks(partition("logs")) != set()


def test_a_fenced_leader_waits_until_it_is_announced_again(registry: Registry) -> None:
    registry.lead(1, [role(3)])
    leader = registry.leader(TIP)
    assert leader is not None
    assert registry.is_current(leader)
    assert registry.fence(leader)
    assert not registry.fence(leader)
    assert not registry.is_current(leader)
    with pytest.raises(StaleLeaderEpochError):
        registry.leader(TIP)
    registry.lead(1, [role(4)])
    assert not registry.is_current(leader)
    assert registry.leader(TIP) is not None


async def test_addresses_that_no_broker_has_any_more_are_told_once(
    registry: Registry, clock: SteppedClock
) -> None:
    """Brokers come back with other addresses, day after day: a connection to each would stay for ever."""
    assert registry.take_left_addresses() == set()
    registry.register(1, "one again", "host1:2")
    registry.register(2, "two", "host2:1")
    registry.register(3, "three", "host3:1")
    registry.register(3, "three again", "host3:2")
    registry.register(4, "four", "host3:1")
    assert registry.take_left_addresses() == {"host1:1"}
    assert registry.take_left_addresses() == set()
    await clock.advance(11)
    registry.expire()
    assert registry.take_left_addresses() == {"host1:2", "host2:1", "host3:1", "host3:2"}
