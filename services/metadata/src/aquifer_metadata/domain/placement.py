"""Which brokers get the replicas of new partitions."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from aquifer_core.errors import ErrorReason, InvalidRequestError

from aquifer_metadata.domain.cluster import Broker

MAX_REPLICATION_FACTOR: Final = 1
"""Most replicas of a partition. Brokers do not replicate: a second replica would stay empty, and whatever relies on it (acks=all,
min.insync.replicas, a failover) would lose data. Replication, once there is one, lifts this."""


def check_replica_count(count: int, most: int) -> None:
    """Refuses more replicas than are kept.

    Raises:
        InvalidRequestError: there are (INVALID_REPLICATION_FACTOR); the text says what to do.
    """
    if count > most:
        why = (
            "brokers do not replicate yet, so a further replica would hold nothing"
            if most == 1
            else "the service keeps no more"
        )
        raise InvalidRequestError(
            f"replication factor {count} is refused: {why}; use {most}, or -1 for the default",
            reason=ErrorReason.INVALID_REPLICATION_FACTOR,
            metadata={"max": str(most)},
        )


def check_move(partition: int, replicas: Sequence[int], target: Sequence[int], most: int) -> None:
    """Refuses to move a partition that has a single replica to another broker, where it would begin empty.

    Raises:
        InvalidRequestError: it would move (INVALID_REPLICATION_FACTOR); the text says why.
    """
    if most == 1 and set(target) != set(replicas):
        raise InvalidRequestError(
            f"partition {partition} stays on broker {list(replicas)}: brokers do not replicate yet, so it would begin empty on"
            f" {list(target)} and its records would be lost; create a topic there instead",
            reason=ErrorReason.INVALID_REPLICATION_FACTOR,
        )


def spread(
    brokers: Sequence[Broker],
    *,
    first_partition: int,
    count: int,
    replication_factor: int,
    start: int,
) -> dict[int, tuple[int, ...]]:
    """Replicas of `count` partitions, leaders in turn over the brokers, followers shifted further each round.

    Racks alternate, so that with as many racks as replicas each replica is in a rack of its own.

    Args:
        brokers: the live ones.
        first_partition: number of the first partition.
        start: where in the ring of brokers to begin, so that topics do not all begin with the same broker.

    Raises:
        InvalidRequestError: fewer brokers than replicas (INVALID_REPLICATION_FACTOR).
    """
    if not 0 < replication_factor <= len(brokers):
        raise InvalidRequestError(
            f"replication factor {replication_factor} cannot be had with {len(brokers)} live brokers",
            reason=ErrorReason.INVALID_REPLICATION_FACTOR,
        )
    ring = _rack_alternated(brokers)
    size = len(ring)
    return {
        partition: _replicas(
            ring, start + partition, (start + partition) // size, replication_factor
        )
        for partition in range(first_partition, first_partition + count)
    }


def check_assignments(
    assignments: Mapping[int, tuple[int, ...]],
    *,
    first_partition: int,
    known: frozenset[int],
    most: int,
) -> None:
    """Refuses replicas that a caller chose and that cannot be.

    Raises:
        InvalidRequestError: partitions are not consecutive (INVALID_PARTITIONS); replicas are empty, doubled, unknown or
            of unequal number, or more than `most` (INVALID_REPLICATION_FACTOR).
    """
    expected = list(range(first_partition, first_partition + len(assignments)))
    if sorted(assignments) != expected:
        raise InvalidRequestError(
            f"assigned partitions {sorted(assignments)} are not {expected[0]} to {expected[-1]}",
            reason=ErrorReason.INVALID_PARTITIONS,
        )
    for partition, replicas in assignments.items():
        check_replica_count(len(replicas), most)
        check_replicas(partition, replicas, known)
    if len({len(replicas) for replicas in assignments.values()}) > 1:
        raise InvalidRequestError(
            "assigned partitions have unequal numbers of replicas",
            reason=ErrorReason.INVALID_REPLICATION_FACTOR,
        )


def check_replicas(partition: int, replicas: Sequence[int], known: frozenset[int]) -> None:
    """Refuses replicas that are empty, doubled or unknown.

    Raises:
        InvalidRequestError: they are (INVALID_REPLICATION_FACTOR).
    """
    if not replicas or len(set(replicas)) != len(replicas) or not known.issuperset(replicas):
        raise InvalidRequestError(
            f"replicas {list(replicas)} of partition {partition} must be distinct known brokers"
            f" (known: {sorted(known)})",
            reason=ErrorReason.INVALID_REPLICATION_FACTOR,
        )


def _replicas(ring: Sequence[int], leader: int, round_: int, factor: int) -> tuple[int, ...]:
    size = len(ring)
    shift = round_ % max(size - 1, 1)
    followers = (
        ring[(leader + 1 + (shift + follower) % (size - 1)) % size]
        for follower in range(factor - 1)
    )
    return (ring[leader % size], *followers)


def _rack_alternated(brokers: Sequence[Broker]) -> list[int]:
    racks: dict[str, deque[int]] = defaultdict(deque)
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks[broker.rack].append(broker.broker_id)
    waiting = deque(racks[rack] for rack in sorted(racks))
    ring = []
    while waiting:
        rack = waiting.popleft()
        ring.append(rack.popleft())
        if rack:
            waiting.append(rack)
    return ring
