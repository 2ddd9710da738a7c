"""Who leads a partition: pure changes of one partition's state."""

from collections.abc import Collection
from dataclasses import replace

from aquifer_core.errors import (
    ConcurrentUpdateError,
    ErrorReason,
    InvalidRequestError,
    NotLeaderError,
    StaleLeaderEpochError,
)

from aquifer_metadata.domain.cluster import NO_LEADER, IsrChange, Partition


def claimed(partition: Partition, broker_id: int, *, unclean: bool) -> Partition | None:
    """The partition after a new incarnation of a broker has registered; None when it has no claim.

    A partition it led goes to it again under a higher leader epoch: an earlier incarnation may still write.
    One without a leader goes to it when it was in sync, or when the topic allows unclean elections.
    """
    led = partition.leader == broker_id
    orphaned = partition.leader == NO_LEADER and broker_id in partition.replicas
    if not led and not (orphaned and (unclean or broker_id in partition.isr)):
        return None
    isr = partition.isr if broker_id in partition.isr else (broker_id,)
    return _led_by(replace(partition, isr=isr), broker_id)


def abandoned(
    partition: Partition, gone: Collection[int], live: Collection[int], *, unclean: bool
) -> Partition | None:
    """The partition after brokers have lost their leases; None when nothing changes.

    The last in-sync replicas stay recorded when nobody is left, so that only they may lead again.
    """
    isr = tuple(member for member in partition.isr if member not in gone)
    if partition.leader not in gone:
        if not isr or isr == partition.isr:
            return None
        return _changed(replace(partition, isr=isr))
    leader = next(
        (member for member in partition.replicas if member in isr and member in live), None
    )
    if leader is not None:
        return _led_by(replace(partition, isr=isr), leader)
    leader = next((member for member in partition.replicas if member in live), None)
    if unclean and leader is not None:
        return _led_by(replace(partition, isr=(leader,)), leader)
    return _led_by(partition, NO_LEADER)


def elected(partition: Partition, live: Collection[int], *, unclean: bool) -> Partition | None:
    """The partition led by the first live in-sync replica in preferred order; None when it is so already.

    Raises:
        NotLeaderError: no live in-sync replica, nor any live one with `unclean`.
    """
    for candidate in partition.replicas:
        if candidate in partition.isr and candidate in live:
            return None if candidate == partition.leader else _led_by(partition, candidate)
    for candidate in partition.replicas:
        if unclean and candidate in live:
            return _led_by(replace(partition, isr=(candidate,)), candidate)
    raise NotLeaderError(
        f"partition {partition.partition} has no live in-sync replica"
        f" (replicas {list(partition.replicas)}, in sync {list(partition.isr)})"
    )


def with_isr(partition: Partition, change: IsrChange, live: Collection[int]) -> Partition | None:
    """The partition with other in-sync replicas; None when it has them already.

    A reassignment under way ends here, once its target replicas are in sync.

    Raises:
        NotLeaderError, StaleLeaderEpochError: the caller does not lead it in that epoch.
        ConcurrentUpdateError: the partition epoch has moved on, or a new member is not alive.
        InvalidRequestError: the members are not replicas, or the leader is not among them.
    """
    _check_leader(partition, change)
    if (
        set(change.isr) == set(partition.isr)
        and change.partition_epoch <= partition.partition_epoch
    ):
        return None
    if change.partition_epoch != partition.partition_epoch:
        raise ConcurrentUpdateError(
            f"partition epoch is {partition.partition_epoch}, the change is based on {change.partition_epoch}"
        )
    members = frozenset(change.isr)
    if not members <= frozenset(partition.replicas) or change.broker_id not in members:
        raise InvalidRequestError(
            f"in-sync replicas {sorted(members)} are not replicas {list(partition.replicas)} with the leader"
        )
    if dead := members - frozenset(partition.isr) - frozenset(live):
        raise ConcurrentUpdateError(f"brokers {sorted(dead)} are not alive and cannot be in sync")
    isr = tuple(member for member in partition.replicas if member in members)
    return _finished(_changed(replace(partition, isr=isr)), live)


def reassigned(partition: Partition, target: tuple[int, ...], live: Collection[int]) -> Partition:
    """The partition on its way to other replicas: old ones are kept until the new ones are in sync."""
    kept = tuple(member for member in partition.replicas if member not in target)
    moved = replace(partition, replicas=(*target, *kept), target_replicas=target)
    return _finished(_changed(moved), live)


def _finished(partition: Partition, live: Collection[int]) -> Partition:
    target = partition.target_replicas
    if not target or not frozenset(target) <= frozenset(partition.isr):
        return partition
    done = replace(partition, replicas=target, isr=target, target_replicas=())
    if done.leader in target or done.leader == NO_LEADER:
        return done
    leader = next((member for member in target if member in live), NO_LEADER)
    return replace(done, leader=leader, leader_epoch=done.leader_epoch + 1)


def _check_leader(partition: Partition, change: IsrChange) -> None:
    if change.leader_epoch < partition.leader_epoch:
        raise StaleLeaderEpochError(
            f"leader epoch {change.leader_epoch} has been followed by {partition.leader_epoch}",
            metadata={"given": str(change.leader_epoch), "current": str(partition.leader_epoch)},
        )
    if change.leader_epoch > partition.leader_epoch or change.broker_id != partition.leader:
        raise NotLeaderError(
            f"broker {change.broker_id} does not lead partition {partition.partition}"
            f" in epoch {change.leader_epoch}",
            reason=ErrorReason.NOT_LEADER,
        )


def _led_by(partition: Partition, leader: int) -> Partition:
    return _changed(replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1))


def _changed(partition: Partition) -> Partition:
    return replace(partition, partition_epoch=partition.partition_epoch + 1)
