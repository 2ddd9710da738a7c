"""Who leads a partition after brokers come, go and change their replicas."""

from dataclasses import replace

import pytest
from aquifer_core.errors import (
    ConcurrentUpdateError,
    InvalidRequestError,
    NotLeaderError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import KafkaUuid
from aquifer_metadata.domain import leadership
from aquifer_metadata.domain.cluster import NO_LEADER, IsrChange, Partition

PARTITION = Partition(
    partition=0, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9
)


def isr_change(isr: tuple[int, ...], partition: Partition = PARTITION) -> IsrChange:
    return IsrChange(
        topic_id=KafkaUuid.random(),
        partition=0,
        broker_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=isr,
    )


def test_a_new_incarnation_of_the_leader_leads_under_a_higher_epoch() -> None:
    changed = leadership.claimed(PARTITION, 1, unclean=False)
    assert changed == replace(PARTITION, leader_epoch=5, partition_epoch=10)


def test_a_new_incarnation_of_a_follower_claims_nothing() -> None:
    assert leadership.claimed(PARTITION, 2, unclean=True) is None


@pytest.mark.parametrize(
    ("broker", "unclean", "isr"),
    [(2, False, (1, 2)), (3, False, None), (3, True, (3,)), (9, True, None)],
)
def test_a_partition_without_a_leader_goes_to_an_in_sync_replica_or_uncleanly_to_any(
    broker: int, unclean: bool, isr: tuple[int, ...] | None
) -> None:
    orphan = replace(PARTITION, leader=NO_LEADER)
    changed = leadership.claimed(orphan, broker, unclean=unclean)
    if isr is None:
        assert changed is None
    else:
        assert changed is not None
        assert (changed.leader, changed.isr, changed.leader_epoch) == (broker, isr, 5)


def test_a_leader_that_goes_is_replaced_from_the_in_sync_replicas() -> None:
    changed = leadership.abandoned(PARTITION, [1], {2, 3}, unclean=False)
    assert changed == replace(PARTITION, leader=2, isr=(2,), leader_epoch=5, partition_epoch=10)


def test_a_follower_that_goes_leaves_the_in_sync_replicas_and_no_leader_changes() -> None:
    changed = leadership.abandoned(PARTITION, [2], {1, 3}, unclean=False)
    assert changed == replace(PARTITION, isr=(1,), partition_epoch=10)
    assert leadership.abandoned(PARTITION, [3], {1, 2}, unclean=False) is None


def test_the_last_in_sync_replicas_stay_recorded_when_nobody_can_lead() -> None:
    changed = leadership.abandoned(PARTITION, [1, 2], {3}, unclean=False)
    assert changed == replace(PARTITION, leader=NO_LEADER, leader_epoch=5, partition_epoch=10)
    unclean = leadership.abandoned(PARTITION, [1, 2], {3}, unclean=True)
    assert unclean is not None
    assert (unclean.leader, unclean.isr) == (3, (3,))


def test_an_election_prefers_the_first_replica_and_is_idempotent() -> None:
    moved = replace(PARTITION, leader=2)
    changed = leadership.elected(moved, {1, 2}, unclean=False)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch) == (1, 5)
    assert leadership.elected(PARTITION, {1, 2}, unclean=False) is None
    with pytest.raises(NotLeaderError):
        leadership.elected(PARTITION, {3}, unclean=False)
    unclean = leadership.elected(PARTITION, {3}, unclean=True)
    assert unclean is not None
    assert (unclean.leader, unclean.isr) == (3, (3,))


def test_in_sync_replicas_change_for_the_leader_alone_and_once() -> None:
    change = isr_change((1, 2, 3))
    changed = leadership.with_isr(PARTITION, change, {1, 2, 3})
    assert changed == replace(PARTITION, isr=(1, 2, 3), partition_epoch=10)
    assert leadership.with_isr(changed, change, {1, 2, 3}) is None, "a repeat changes nothing"
    for wrong, error in [
        (replace(change, broker_id=2), NotLeaderError),
        (replace(change, leader_epoch=5), NotLeaderError),
        (replace(change, leader_epoch=3), StaleLeaderEpochError),
        (replace(change, partition_epoch=8), ConcurrentUpdateError),
        (replace(change, isr=(2, 3)), InvalidRequestError),
        (replace(change, isr=(1, 7)), InvalidRequestError),
        (replace(change, isr=()), InvalidRequestError),
    ]:
        with pytest.raises(error):
            leadership.with_isr(PARTITION, wrong, {1, 2, 3})


def test_a_replica_that_is_not_alive_does_not_come_in_sync() -> None:
    with pytest.raises(ConcurrentUpdateError, match="not alive"):
        leadership.with_isr(PARTITION, isr_change((1, 2, 3)), {1, 2})


def test_a_reassignment_ends_when_its_targets_are_in_sync() -> None:
    moving = leadership.reassigned(PARTITION, (4, 3), {1, 2, 3, 4})
    assert (moving.replicas, moving.isr, moving.leader) == ((4, 3, 1, 2), (1, 2), 1)
    half = leadership.with_isr(moving, isr_change((1, 2, 3), moving), {1, 2, 3, 4})
    assert half is not None
    assert half.replicas == (4, 3, 1, 2)
    done = leadership.with_isr(half, isr_change((1, 2, 3, 4), half), {1, 2, 3, 4})
    assert done is not None
    assert (done.replicas, done.isr, done.leader) == ((4, 3), (4, 3), 4)
    assert (done.leader_epoch, done.target_replicas) == (5, ())


def test_a_reassignment_to_in_sync_replicas_is_done_at_once() -> None:
    done = leadership.reassigned(PARTITION, (2, 1), {1, 2})
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((2, 1), (2, 1), 1, 4)
