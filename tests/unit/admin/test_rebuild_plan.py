"""What a rebuild of metadata would write (T59)."""

from __future__ import annotations

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer_admin.rebuild_plan import (
    ABANDONED_AFTER_MS,
    FINISHED,
    STARTED,
    Action,
    by_partition,
    plan_partition,
)

NOW_MS = 10 * ABANDONED_AFTER_MS


def metadata(
    name: str,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    partition: int = 0,
    state: segment_pb2.RemoteLogSegmentState.ValueType = STARTED,
    event_timestamp_ms: int = 1,
) -> segment_pb2.RemoteLogSegmentMetadata:
    where = partition_pb2.TopicIdPartition(topic="t", topic_id="T" * 22, partition=partition)
    return segment_pb2.RemoteLogSegmentMetadata(
        segment_id=segment_pb2.RemoteLogSegmentId(topic_id_partition=where, id=name),
        start_offset=start,
        end_offset=end,
        state=state,
        segment_leader_epochs=epochs or {0: start},
        event_timestamp_ms=event_timestamp_ms,
    )


def planned(
    stored: list[segment_pb2.RemoteLogSegmentMetadata],
    known: list[segment_pb2.RemoteLogSegmentMetadata],
) -> dict[str, Action]:
    holdings = [segment_pb2.StoredSegment(metadata=each) for each in stored]
    return {
        each.metadata.segment_id.id: each.action for each in plan_partition(holdings, known, NOW_MS)
    }


def test_what_metadata_does_not_know_is_added_in_the_order_of_offsets() -> None:
    actions = planned([metadata("b", 10, 19), metadata("a", 0, 9)], [])
    assert list(actions.items()) == [("a", Action.ADD), ("b", Action.ADD)]


def test_what_metadata_knows_stays_whatever_its_state() -> None:
    deleted = segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_STARTED
    known = [metadata("a", 0, 9, state=FINISHED), metadata("b", 10, 19, state=deleted)]
    assert set(planned([metadata("a", 0, 9), metadata("b", 10, 19)], known).values()) == {
        Action.KNOWN
    }


def test_a_copy_that_may_still_be_under_way_is_left_to_its_broker() -> None:
    recent = metadata("a", 0, 9, event_timestamp_ms=NOW_MS - 1_000)
    assert planned([metadata("a", 0, 9)], [recent]) == {"a": Action.KNOWN}


def test_what_an_interrupted_rebuild_has_begun_is_finished() -> None:
    assert planned([metadata("a", 0, 9)], [metadata("a", 0, 9)]) == {"a": Action.FINISH}


def test_a_second_copy_of_the_same_offsets_is_left_out() -> None:
    """A copy whose commit never came leaves a whole segment in the store; two would count twice in retention."""
    stored = [
        metadata("older", 0, 9, event_timestamp_ms=1),
        metadata("newer", 0, 9, event_timestamp_ms=2),
        metadata("inside", 3, 5, {0: 3}),
    ]
    assert planned(stored, []) == {
        "newer": Action.ADD,
        "older": Action.SUPERSEDED,
        "inside": Action.SUPERSEDED,
    }
    known = [metadata("row", 0, 20, state=FINISHED)]
    assert set(planned(stored, known).values()) == {Action.SUPERSEDED}


def test_the_same_offsets_of_another_lineage_are_kept() -> None:
    """SR-11: what an unclean election left differs in content."""
    stored = [metadata("a", 0, 9, {0: 0, 1: 5}), metadata("b", 0, 9, {0: 0, 2: 5})]
    assert set(planned(stored, []).values()) == {Action.ADD}
    stored = [metadata("long", 0, 19, {0: 0, 1: 5, 2: 12}), metadata("cut", 3, 9, {0: 3, 1: 5})]
    assert planned(stored, []) == {"long": Action.ADD, "cut": Action.SUPERSEDED}
    stored = [metadata("long", 0, 19, {0: 0, 1: 5, 2: 12}), metadata("cut", 3, 9, {0: 3})]
    assert set(planned(stored, []).values()) == {Action.ADD}


def test_overlapping_segments_that_each_hold_something_are_all_kept() -> None:
    stored = [metadata("a", 0, 9), metadata("b", 5, 14)]
    assert set(planned(stored, []).values()) == {Action.ADD}


def test_an_unfinished_row_supersedes_nothing() -> None:
    known = [metadata("other", 0, 20, event_timestamp_ms=NOW_MS)]
    assert planned([metadata("a", 0, 9)], known) == {"a": Action.ADD}


def test_partitions_are_kept_apart() -> None:
    stored = [
        segment_pb2.StoredSegment(metadata=metadata(str(number), 0, 9, partition=number))
        for number in range(3)
    ]
    assert sorted(by_partition(stored)) == [("t", "T" * 22, number) for number in range(3)]
