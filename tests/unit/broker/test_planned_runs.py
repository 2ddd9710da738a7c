"""Which reads may go by an earlier plan."""

from dataclasses import replace

import builders
import pytest
from aquifer_broker.tiering.planned_runs import PlannedRuns
from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch
from aquifer_core.segment import IsolationLevel, RemoteLogSegmentMetadata

TIP = builders.topic_id_partition()
MIB = 1 << 20


class Clock:
    """Stands until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runs(clock: Clock) -> PlannedRuns:
    return PlannedRuns(ttl_s=5.0, now_s=clock)


def segment(start: int, size_bytes: int = MIB, **epochs: int) -> RemoteLogSegmentMetadata:
    leader_epochs = {int(epoch[1:]): first for epoch, first in epochs.items()} or {0: start}
    return builders.remote_segment(
        TIP, start, start + 9, segment_size_bytes=size_bytes, segment_leader_epochs=leader_epochs
    )


def fetch(offset: int, max_bytes: int = MIB, **changes: object) -> RemoteFetch:
    request = RemoteFetch(
        topic_id_partition=TIP,
        leader_epoch=0,
        fetch_offset=offset,
        max_bytes=max_bytes,
        min_one_batch=True,
        isolation=IsolationLevel.READ_COMMITTED,
        lineage=((0, 0),),
        local_log_start_offset=1000,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def keep(runs: PlannedRuns, request: RemoteFetch, *segments: RemoteLogSegmentMetadata) -> None:
    first, *following = segments
    plan = FetchPlan(
        segment=first,
        fetch_offset=request.fetch_offset,
        max_bytes=request.max_bytes,
        aborted=(),
        reusable=True,
        following=tuple(following),
    )
    runs.keep(request, plan, runs.begin())


def test_a_plan_serves_every_offset_of_its_segments(runs: PlannedRuns) -> None:
    segments = [segment(start) for start in (10, 20, 30)]
    keep(runs, fetch(15), *segments)
    for offset, number in [(10, 0), (19, 0), (20, 1), (39, 2)]:
        plan = runs.plan(fetch(offset, 77))
        assert plan is not None
        assert (plan.segment, plan.fetch_offset, plan.max_bytes) == (segments[number], offset, 77)
        assert plan.next_segment == (segments[number + 1] if number < 2 else None)
    assert runs.plan(fetch(9)) is None
    assert runs.plan(fetch(40)) is None


def test_of_overlapping_segments_the_one_that_reaches_furthest_serves(runs: PlannedRuns) -> None:
    first, second = segment(10), segment(15)
    keep(runs, fetch(10), first, second)
    plans = [runs.plan(fetch(offset)) for offset in (14, 15)]
    assert [plan.segment for plan in plans if plan is not None] == [first, second]


def test_a_plan_is_used_for_a_few_seconds_from_the_question_on(
    runs: PlannedRuns, clock: Clock
) -> None:
    keep(runs, fetch(10), segment(10))
    clock.now_s = 4.9
    assert runs.plan(fetch(11)) is not None
    clock.now_s = 5.0
    assert runs.plan(fetch(11)) is None


def test_the_end_of_a_plan_is_planned_anew_where_the_remote_log_may_go_on(
    runs: PlannedRuns,
) -> None:
    """So that storage can read ahead across the border."""
    keep(runs, fetch(10, 8 * MIB), segment(10, 64 * MIB))
    assert runs.plan(fetch(12, 8 * MIB)) is not None
    assert runs.plan(fetch(19, 8 * MIB)) is None
    keep(runs, fetch(19, 8 * MIB), segment(10, 64 * MIB))
    assert runs.plan(fetch(19, 8 * MIB)) is not None


def test_what_other_readers_were_told_is_kept_and_the_oldest_given_up(runs: PlannedRuns) -> None:
    for start in (10, 30, 50, 70):
        keep(runs, fetch(start), segment(start))
    assert runs.plan(fetch(15)) is not None
    keep(runs, fetch(90), segment(90))
    assert runs.plan(fetch(15)) is None
    assert all(runs.plan(fetch(start)) is not None for start in (30, 50, 70, 90))
    runs.forget(TIP)
    assert runs.plan(fetch(90)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"leader_epoch": 1},
        {"lineage": ((0, 0), (1, 500))},
        {"local_log_start_offset": 1001},
        {"topic_id_partition": builders.topic_id_partition()},
    ],
    ids=["epoch", "lineage", "local-log-start", "partition"],
)
def test_a_reader_in_other_circumstances_is_not_served(
    runs: PlannedRuns, changes: dict[str, object]
) -> None:
    keep(runs, fetch(10), segment(10))
    assert runs.plan(fetch(10, **changes)) is None


def test_plans_for_one_read_are_not_kept(runs: PlannedRuns) -> None:
    plan = FetchPlan(segment=segment(10), fetch_offset=10, max_bytes=1, aborted=())
    runs.keep(fetch(10), plan, runs.begin())
    assert runs.plan(fetch(10)) is None


def test_a_run_ends_with_its_leader_epoch(runs: PlannedRuns) -> None:
    keep(runs, fetch(10), segment(10, e0=10, e1=15))
    assert runs.plan(fetch(14)) is not None
    assert runs.plan(fetch(15)) is None
    assert runs.plan(fetch(15, leader_epoch=1)) is None
