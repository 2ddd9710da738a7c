"""What retention deletes: K-3.4 with all its vectors, and where Aquifer goes beyond it (SR-10, SR-11, SR-17)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import builders
import pytest
from aquifer_core.ports import RetentionPlan, RetentionPolicy, RetentionReason
from aquifer_core.retention import plan_retention
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
PARTITION = builders.topic_id_partition()
NOW_MS = builders.BASE_TIMESTAMP_MS + 1_000_000_000


def segment(
    start: int, end: int, epochs: dict[int, int] | None = None, **fields: Any
) -> RemoteLogSegmentMetadata:
    fields.setdefault("state", FINISHED)
    return builders.remote_segment(PARTITION, start, end, epochs, **fields)


def policy(**fields: Any) -> RetentionPolicy:
    defaults: dict[str, Any] = {
        "retention_ms": -1,
        "retention_bytes": -1,
        "log_start_offset": 0,
        "log_end_offset": 100_000,
    }
    return RetentionPolicy(**(defaults | fields))


def plan(
    segments: Iterable[RemoteLogSegmentMetadata],
    rules: RetentionPolicy,
    lineage: dict[int, int] | None = None,
    now_ms: int = NOW_MS,
) -> RetentionPlan:
    return plan_retention(segments, {0: 0} if lineage is None else lineage, rules, now_ms)


def chosen(result: RetentionPlan) -> list[tuple[int, RetentionReason]]:
    return [(item.metadata.start_offset, item.reason) for item in result.candidates]


def fifty_segments() -> tuple[list[RemoteLogSegmentMetadata], dict[int, int]]:
    """50 segments of 100 records and 1024 bytes in the epochs 0@0, 1@20, 3@50, 4@100."""
    lineage = {0: 0, 1: 20, 3: 50, 4: 100}
    segments = []
    for number in range(50):
        start, end = number * 100, number * 100 + 99
        inside = {epoch: at for epoch, at in lineage.items() if start <= at <= end}
        before = max(epoch for epoch, at in lineage.items() if at <= start)
        segments.append(segment(start, end, {before: start} | inside))
    return segments, lineage


@pytest.mark.parametrize("count", [0, 1, 23, 50])
def test_size_retention_deletes_exactly_the_oldest_that_are_too_much(count: int) -> None:
    """K-3.4, RemoteLogManagerTest."""
    segments, lineage = fifty_segments()
    rules = policy(
        retention_bytes=(50 - count) * 1024 + 512, local_only_bytes=512, log_end_offset=5_000
    )
    result = plan(reversed(segments), rules, lineage)
    assert chosen(result) == [
        (number * 100, RetentionReason.RETENTION_SIZE) for number in range(count)
    ]
    assert result.new_log_start_offset == (count * 100 if count else None)
    assert result.remote_bytes == 50 * 1024


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (policy(retention_bytes=0), RetentionReason.RETENTION_SIZE),
        (policy(retention_ms=0), RetentionReason.RETENTION_TIME),
    ],
)
def test_retention_of_nothing_deletes_everything(
    rules: RetentionPolicy, reason: RetentionReason
) -> None:
    result = plan([segment(0, 99), segment(100, 199)], rules)
    assert chosen(result) == [(0, reason), (100, reason)]
    assert result.new_log_start_offset == 200


@pytest.mark.parametrize("rules", [policy(retention_bytes=0), policy(retention_ms=0)])
def test_overlapping_segments_are_both_deleted(rules: RetentionPolicy) -> None:
    """K-3.4: 0-99 and 0-104."""
    result = plan([segment(0, 104), segment(0, 99)], rules)
    assert [start for start, _ in chosen(result)] == [0, 0]
    assert result.new_log_start_offset == 105


def test_an_age_of_exactly_the_retention_time_is_too_old() -> None:
    segments = [
        segment(start, start + 9, max_timestamp_ms=NOW_MS - age_ms)
        for start, age_ms in [(0, 1_001), (10, 1_000), (20, 999)]
    ]
    result = plan(segments, policy(retention_ms=1_000))
    assert chosen(result) == [
        (0, RetentionReason.RETENTION_TIME),
        (10, RetentionReason.RETENTION_TIME),
    ]
    assert result.new_log_start_offset == 20


def test_a_retention_time_longer_than_all_time_deletes_nothing() -> None:
    assert chosen(plan([segment(0, 9)], policy(retention_ms=NOW_MS + 1))) == []


def test_the_first_valid_segment_that_stays_ends_the_search() -> None:
    young = segment(0, 9, max_timestamp_ms=NOW_MS)
    old = segment(10, 19, max_timestamp_ms=0)
    assert chosen(plan([young, old], policy(retention_ms=1_000))) == []


def test_a_segment_of_unknown_age_is_as_old_as_its_last_event() -> None:
    segments = [
        segment(0, 9, max_timestamp_ms=-1, event_timestamp_ms=NOW_MS - 2_000),
        segment(10, 19, max_timestamp_ms=-1, event_timestamp_ms=NOW_MS),
    ]
    assert [start for start, _ in chosen(plan(segments, policy(retention_ms=1_000)))] == [0]


def test_what_goes_because_of_its_age_counts_towards_the_size() -> None:
    segments = [
        segment(0, 9, max_timestamp_ms=0),
        *(segment(start, start + 9, max_timestamp_ms=NOW_MS) for start in (10, 20, 30)),
    ]
    result = plan(segments, policy(retention_ms=1_000, retention_bytes=2 * 1024))
    assert chosen(result) == [
        (0, RetentionReason.RETENTION_TIME),
        (10, RetentionReason.RETENTION_SIZE),
    ]


def test_copies_that_are_not_finished_count_nothing() -> None:
    """T08, KAFKA-17062: failed copies must not push good data out."""
    good = [segment(start, start + 9) for start in (0, 10)]
    rest = [segment(20, 29, state=STARTED, event_timestamp_ms=NOW_MS) for _ in range(50)]
    rest += [segment(20, 29, state=DELETING) for _ in range(50)]
    result = plan([*good, *rest], policy(retention_bytes=2 * 1024))
    assert {reason for _, reason in chosen(result)} == {RetentionReason.DELETE_UNFINISHED}
    assert result.remote_bytes == 2 * 1024


def test_offsets_held_by_several_segments_count_once() -> None:
    """KAFKA-15168: overlapping copies after a leader change."""
    twice = [segment(start, start + 99) for start in (0, 0, 0, 100)]
    assert plan(twice, policy()).remote_bytes == 2 * 1024
    assert chosen(plan(twice, policy(retention_bytes=2 * 1024))) == []
    part = [segment(0, 99, segment_size_bytes=1000), segment(50, 149, segment_size_bytes=2000)]
    assert plan(part, policy()).remote_bytes == 2000


def test_the_size_never_falls_below_what_is_to_be_kept_when_segments_overlap() -> None:
    segments = [
        segment(0, 99, segment_size_bytes=1000),
        segment(0, 149, segment_size_bytes=1500),
        segment(150, 249, segment_size_bytes=1000),
    ]
    total = 2500
    for kept in range(0, total + 1, 250):
        result = plan(segments, policy(retention_bytes=kept))
        start = result.new_log_start_offset or 0
        assert total - start * 10 >= kept
    result = plan(segments, policy(retention_bytes=1000))
    assert [start for start, _ in chosen(result)] == [0, 0]
    assert result.new_log_start_offset == 150


def test_segments_below_the_log_start_offset_go_without_moving_it() -> None:
    segments = [segment(0, 9), segment(10, 19), segment(20, 29)]
    result = plan(segments, policy(log_start_offset=20))
    assert chosen(result) == [
        (0, RetentionReason.LOG_START_OFFSET_BREACH),
        (10, RetentionReason.LOG_START_OFFSET_BREACH),
    ]
    assert result.new_log_start_offset is None


def test_a_log_start_offset_breach_needs_epochs_up_to_the_first_of_the_lineage() -> None:
    below = segment(0, 9, {3: 0}, max_timestamp_ms=NOW_MS)
    rules = policy(log_start_offset=10)
    assert chosen(plan([below], rules, {2: 0, 3: 0})) == [
        (0, RetentionReason.LOG_START_OFFSET_BREACH)
    ], "epoch 2 holds no record and is left out"
    assert chosen(plan([below], rules, {2: 0, 3: 5})) == []


def test_what_lies_below_the_log_start_offset_does_not_push_out_more() -> None:
    segments = [segment(start, start + 9) for start in (0, 10, 20)]
    result = plan(segments, policy(log_start_offset=10, retention_bytes=2 * 1024))
    assert chosen(result) == [(0, RetentionReason.LOG_START_OFFSET_BREACH)]


def test_a_log_start_offset_that_has_moved_further_does_not_move_back() -> None:
    old = segment(0, 9, {5: 0}, max_timestamp_ms=0)
    rules = policy(retention_ms=1_000, log_start_offset=50)
    result = plan([old], rules, {4: 0, 5: 0, 6: 5_000})
    assert chosen(result) == [(0, RetentionReason.LOG_START_OFFSET_BREACH)]
    result = plan([old], rules, {4: 0, 5: 1})
    assert result.candidates == ()
    assert result.new_log_start_offset is None


@pytest.mark.parametrize(
    ("bounds", "epochs", "inside"),
    [
        ((15, 35), {1: 15, 2: 20, 3: 30}, True),
        ((15, 19), {1: 15}, True),
        ((0, 5), {0: 0}, True),
        ((70, 75), {7: 70}, True),
        ((15, 29), {1: 15, 2: 20}, True),
        ((55, 85), {5: 55, 6: 60, 7: 70}, False),
        ((15, 45), {1: 15, 2: 20, 4: 40}, False),
        ((15, 35), {1: 15, 2: 20}, False),
        ((5, 25), {1: 5, 2: 20}, False),
        ((85, 90), {7: 85}, False),
    ],
)
def test_only_segments_of_the_lineage_expire(
    bounds: tuple[int, int], epochs: dict[int, int], inside: bool
) -> None:
    """K-3.4, vectors for LEO 90."""
    lineage = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}
    result = plan([segment(*bounds, epochs)], policy(retention_ms=0, log_end_offset=90), lineage)
    assert [reason for _, reason in chosen(result)] == [RetentionReason.RETENTION_TIME] * inside
    assert result.remote_bytes == 1024 * inside


def test_a_segment_outside_the_lineage_is_passed_over() -> None:
    stray = segment(0, 9, {0: 0, 1: 5}, max_timestamp_ms=0)
    result = plan(
        [stray, segment(0, 9, max_timestamp_ms=0)], policy(retention_ms=1_000), {0: 0, 2: 1000}
    )
    assert [(item.metadata.segment_leader_epochs, item.reason) for item in result.candidates] == [
        ({0: 0}, RetentionReason.RETENTION_TIME)
    ]


def test_segments_of_leaders_from_before_the_lineage_go() -> None:
    """T11, KAFKA-16511: unclean election, then retention."""
    segments = [
        segment(0, 99, {0: 0, 1: 50}),
        segment(100, 199, {1: 100, 3: 150}),
        segment(200, 299, {3: 200}),
    ]
    result = plan(segments, policy(), {3: 150})
    assert chosen(result) == [(0, RetentionReason.NOT_IN_LINEAGE)]
    assert result.new_log_start_offset is None


@pytest.mark.parametrize(("log_end_offset", "kept"), [(0, 2), (150, 1), (199, 1), (200, 0)])
def test_what_a_leader_has_lost_is_not_deleted_for_its_lineage(
    log_end_offset: int, kept: int
) -> None:
    """A leader that begins anew with an empty disk must not take the remote part with it."""
    segments = [segment(0, 99, {0: 0}), segment(100, 199, {0: 100})]
    result = plan(segments, policy(log_end_offset=log_end_offset), {1: 0})
    assert len(chosen(result)) == 2 - kept
    assert result.new_log_start_offset is None


def test_epochs_without_records_count_when_the_earliest_one_is_looked_for() -> None:
    """The unfiltered cache decides."""
    assert chosen(plan([segment(0, 9, {2: 0})], policy(), {2: 0, 3: 0})) == []


def test_unfinished_deletions_go_last_whatever_retention_says() -> None:
    """K-3.3. Those first that were tried longest ago."""
    segments = [
        segment(0, 9, max_timestamp_ms=0),
        segment(10, 19, max_timestamp_ms=NOW_MS),
        segment(20, 29, state=DELETING, event_timestamp_ms=1),
        segment(5, 9, {9: 5}, state=DELETING, event_timestamp_ms=2),
        segment(30, 39, state=DELETING, event_timestamp_ms=1),
    ]
    assert chosen(plan(segments, policy(retention_ms=1_000))) == [
        (0, RetentionReason.RETENTION_TIME),
        (20, RetentionReason.DELETE_UNFINISHED),
        (30, RetentionReason.DELETE_UNFINISHED),
        (5, RetentionReason.DELETE_UNFINISHED),
    ]


def test_only_abandoned_copies_go_and_nothing_else_makes_them() -> None:
    """T10, KAFKA-17428."""
    rules = policy(
        retention_ms=0, retention_bytes=0, log_start_offset=1_000, copy_abandoned_after_ms=500
    )
    for age_ms, abandoned in [(500, False), (501, True)]:
        copy = segment(0, 9, state=STARTED, event_timestamp_ms=NOW_MS - age_ms)
        expected = [(0, RetentionReason.COPY_ABANDONED)] if abandoned else []
        result = plan([copy], rules)
        assert chosen(result) == expected
        assert result.new_log_start_offset is None


def test_an_unfinished_copy_does_not_stop_the_search() -> None:
    copying = segment(0, 9, state=STARTED, event_timestamp_ms=NOW_MS)
    result = plan([copying, segment(0, 9, max_timestamp_ms=0)], policy(retention_ms=1_000))
    assert chosen(result) == [(0, RetentionReason.RETENTION_TIME)]


def test_nothing_at_or_after_a_copy_in_progress_is_touched() -> None:
    segments = [
        segment(0, 9),
        segment(10, 19, state=STARTED, event_timestamp_ms=0),
        segment(10, 19, state=DELETING),
        segment(20, 29),
    ]
    rules = policy(retention_ms=0, in_progress=frozenset({segments[1].segment_id.id}))
    assert chosen(plan(segments, rules)) == [(0, RetentionReason.RETENTION_TIME)]
    unrelated = replace(rules, in_progress=frozenset({builders.topic_id_partition().topic_id}))
    assert len(chosen(plan(segments, unrelated))) == 4


def test_without_a_lineage_nothing_expires() -> None:
    segments = [segment(0, 9), segment(10, 19, state=DELETING)]
    rules = policy(retention_ms=0, retention_bytes=0, log_start_offset=100)
    assert chosen(plan(segments, rules, {})) == [(10, RetentionReason.DELETE_UNFINISHED)]


def test_nothing_listed_is_nothing_to_do() -> None:
    result = plan([], policy(retention_ms=0, retention_bytes=0))
    assert result == RetentionPlan(candidates=(), new_log_start_offset=None, remote_bytes=0)


def test_a_segment_listed_twice_is_chosen_once() -> None:
    once = segment(0, 9)
    assert len(plan([once, once], policy(retention_ms=0)).candidates) == 1
