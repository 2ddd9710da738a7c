"""Which brokers get the replicas of new partitions."""

from collections import Counter

import pytest
from aquifer_core.errors import ErrorReason, InvalidRequestError
from aquifer_metadata.domain.cluster import Broker
from aquifer_metadata.domain.placement import (
    MAX_REPLICATION_FACTOR,
    check_assignments,
    check_move,
    check_replica_count,
    spread,
)
from aquifer_metadata.domain.topic_names import check_topic_name, collision_name


def brokers(racks: list[str]) -> list[Broker]:
    return [
        Broker(broker_id=number, incarnation="", rack=rack) for number, rack in enumerate(racks)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("start", [0, 3])
def test_leaders_and_replicas_are_spread_evenly_over_distinct_brokers(
    count: int, start: int
) -> None:
    for factor in range(1, count + 1):
        placed = spread(
            brokers([""] * count),
            first_partition=0,
            count=count * 4,
            replication_factor=factor,
            start=start,
        )
        assert list(placed) == list(range(count * 4))
        leaders = Counter(replicas[0] for replicas in placed.values())
        assert set(leaders.values()) == {4}
        assert all(len(set(replicas)) == factor for replicas in placed.values())
        everyone = Counter(member for replicas in placed.values() for member in replicas)
        assert max(everyone.values()) - min(everyone.values()) <= 4


def test_replicas_are_in_racks_of_their_own_where_there_are_enough() -> None:
    racks = ["a", "a", "b", "b", "c", "c"]
    placed = spread(brokers(racks), first_partition=0, count=6, replication_factor=3, start=0)
    for replicas in placed.values():
        assert len({racks[member] for member in replicas}) == 3


def test_partitions_added_later_go_on_where_the_first_ones_ended() -> None:
    placed = spread(brokers(["", ""]), first_partition=3, count=2, replication_factor=1, start=0)
    assert placed == {3: (1,), 4: (0,)}


@pytest.mark.parametrize("factor", [0, -2, 3])
def test_a_replication_factor_needs_as_many_brokers(factor: int) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        spread(brokers(["", ""]), first_partition=0, count=1, replication_factor=factor, start=0)
    assert refused.value.reason is ErrorReason.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ({0: (1,), 2: (1,)}, ErrorReason.INVALID_PARTITIONS),
        ({1: (1,)}, ErrorReason.INVALID_PARTITIONS),
        ({0: ()}, ErrorReason.INVALID_REPLICATION_FACTOR),
        ({0: (1, 1)}, ErrorReason.INVALID_REPLICATION_FACTOR),
        ({0: (1, 9)}, ErrorReason.INVALID_REPLICATION_FACTOR),
        ({0: (1, 2), 1: (1,)}, ErrorReason.INVALID_REPLICATION_FACTOR),
    ],
)
def test_chosen_replicas_that_cannot_be_are_refused(
    assignments: dict[int, tuple[int, ...]], reason: ErrorReason
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_assignments(assignments, first_partition=0, known=frozenset({1, 2}), most=2)
    assert refused.value.reason is reason


def test_replicas_that_brokers_do_not_keep_are_refused_with_reason_and_remedy() -> None:
    check_replica_count(1, MAX_REPLICATION_FACTOR)
    with pytest.raises(InvalidRequestError, match=r"do not replicate yet.*use 1") as refused:
        check_replica_count(2, MAX_REPLICATION_FACTOR)
    assert refused.value.reason is ErrorReason.INVALID_REPLICATION_FACTOR
    with pytest.raises(InvalidRequestError, match="use 3"):
        check_assignments({0: (1, 2, 3, 4)}, first_partition=0, known=frozenset(range(9)), most=3)


def test_a_single_replica_stays_where_its_records_are() -> None:
    check_move(0, (1,), (1,), 1)
    check_move(0, (1, 2), (2, 3), 2)
    with pytest.raises(InvalidRequestError, match=r"stays on broker \[1\].*begin empty on \[2\]"):
        check_move(0, (1,), (2,), 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_topic_name(name)
    assert refused.value.reason is ErrorReason.INVALID_TOPIC


def test_names_that_kafka_takes_are_taken() -> None:
    for name in ("a", "A-b_c.9", "a" * 249, "__consumer_offsets", "..."):
        check_topic_name(name)
    assert collision_name("a.b") == collision_name("a_b")
