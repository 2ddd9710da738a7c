"""Records of Kafka's metadata topic, what they come to, and what is to be written to make both sides agree."""

import struct
from copy import deepcopy
from typing import Any

import pytest
from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer_admin.metadata_topic.highest import peaks_of_gone
from aquifer_admin.metadata_topic.moving import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    Action,
    fold,
    plan,
    segment_key,
)
from aquifer_admin.metadata_topic.records import (
    PartitionDelete,
    Record,
    Segment,
    Update,
    decode,
    encode,
)
from aquifer_admin.metadata_topic.topic import topic_id_text
from aquifer_core.errors import CorruptRecordError
from aquifer_core.ids import KafkaUuid
from confluent_kafka import Uuid
from hypothesis import given
from hypothesis import strategies as st

TOPIC_ID = str(KafkaUuid(bytes(range(16))))
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSET = st.integers(0, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
UUID = st.binary(min_size=16, max_size=16).map(lambda raw: str(KafkaUuid(raw)))
STATE = st.sampled_from([STARTED, FINISHED, DELETING, DELETED])


@given(most=INT64, least=INT64)
def test_topic_ids_of_the_client_library_are_read_as_kafka_writes_them(
    most: int, least: int
) -> None:
    """Segments of a topic whose id has a dash or a low line were taken for those of a deleted topic."""
    found = Uuid(most, least)
    assert topic_id_text(found) == str(KafkaUuid(struct.pack(">qq", most, least)))


def segment(
    start_offset: int = 0, state: Any = STARTED, custom_metadata: bytes | None = None
) -> Segment:
    return Segment(
        segment_id=segment_id(start_offset),
        start_offset=start_offset,
        end_offset=start_offset + 9,
        broker_id=1,
        segment_leader_epochs={0: start_offset},
        segment_size_bytes=100,
        state=state,
        custom_metadata=custom_metadata,
    )


def segment_id(start_offset: int) -> segment_pb2.RemoteLogSegmentId:
    where = partition_pb2.TopicIdPartition(topic="orders", topic_id=TOPIC_ID, partition=3)
    made = str(KafkaUuid(start_offset.to_bytes(16, "big")))
    return segment_pb2.RemoteLogSegmentId(topic_id_partition=where, id=made)


def update(start_offset: int, state: Any, custom_metadata: bytes | None = None) -> Update:
    return Update(
        segment_id=segment_id(start_offset),
        broker_id=2,
        event_timestamp_ms=7,
        custom_metadata=custom_metadata,
        state=state,
    )


@st.composite
def segment_ids(draw: st.DrawFn) -> segment_pb2.RemoteLogSegmentId:
    where = partition_pb2.TopicIdPartition(
        topic=draw(st.text(min_size=1, max_size=249)), topic_id=draw(UUID), partition=draw(INT32)
    )
    return segment_pb2.RemoteLogSegmentId(topic_id_partition=where, id=draw(UUID))


@given(
    st.builds(
        Segment,
        segment_id=segment_ids(),
        start_offset=OFFSET,
        end_offset=OFFSET,
        broker_id=INT32,
        max_timestamp_ms=INT64,
        event_timestamp_ms=INT64,
        segment_size_bytes=INT32,
        state=STATE,
        segment_leader_epochs=st.dictionaries(INT32, OFFSET, max_size=200),
        custom_metadata=st.none() | st.binary(max_size=200),
        txn_index_empty=st.booleans(),
    )
    | st.builds(
        Update,
        segment_id=segment_ids(),
        broker_id=INT32,
        event_timestamp_ms=INT64,
        custom_metadata=st.none() | st.binary(max_size=200),
        state=STATE,
    )
)
def test_what_is_written_is_read_again(record: Segment | Update) -> None:
    assert decode(encode(record)) == record


def test_the_bytes_are_those_of_the_format() -> None:
    """K-1.4: frame, kind and version, compact texts, fixed numbers, tagged fields at the end of each structure."""
    written = encode(update(5, FINISHED, b"cm"))
    assert written == (
        bytes([1, 1, 0])
        + bytes([7]) + b"orders" + bytes(range(16)) + bytes([0, 0, 0, 3]) + bytes([0])
        + (5).to_bytes(16, "big") + bytes([0])
        + bytes([0, 0, 0, 2]) + (7).to_bytes(8, "big")
        + bytes([3]) + b"cm"
        + bytes([1])
        + bytes([0])
    )  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        b"\x02\x00\x00",
        b"\x01\x09\x00",
        encode(segment())[:-3],
        encode(segment()).replace(b"orders", b"order\xff"),
    ],
)
def test_what_cannot_be_read_is_said(value: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode(value)


def test_records_come_to_the_last_state_of_each_segment() -> None:
    records: list[Record] = [
        segment(0),
        segment(10),
        update(0, FINISHED, b"kept"),
        segment(20),
        update(10, FINISHED, b"dropped"),
        update(10, DELETING),
        update(99, FINISHED),  # of a segment that was never begun
        update(0, STARTED),  # a step back
    ]
    folded = fold(records)
    found = folded.segments
    assert folded.finished == {segment_key(segment_id(0)), segment_key(segment_id(10))}
    states = {each.start_offset: each.state for each in found.values()}
    assert states == {0: FINISHED, 10: DELETING, 20: STARTED}
    first = found[segment_key(segment_id(0))]
    assert (first.custom_metadata, first.broker_id, first.event_timestamp_ms) == (b"kept", 2, 7)
    assert not found[segment_key(segment_id(10))].HasField("custom_metadata")


def test_a_deleted_partition_has_no_segments() -> None:
    gone = PartitionDelete(topic_id=TOPIC_ID, partition=3, finished=True)
    marked = PartitionDelete(topic_id=TOPIC_ID, partition=3, finished=False)
    other = PartitionDelete(topic_id=TOPIC_ID, partition=4, finished=True)
    for last, state in ((gone, DELETED), (marked, FINISHED), (other, FINISHED)):
        folded = fold([segment(), update(0, FINISHED), last])
        [found] = folded.segments.values()
        assert found.state == state
        assert bool(folded.finished) == (state == FINISHED)


@pytest.mark.parametrize(
    ("wanted", "present", "action", "states"),
    [
        (STARTED, None, Action.ADD, (STARTED,)),
        (FINISHED, None, Action.ADD, (STARTED, FINISHED)),
        (DELETING, None, Action.ADD, (STARTED, DELETING)),
        (FINISHED, STARTED, Action.ADVANCE, (FINISHED,)),
        (DELETING, FINISHED, Action.ADVANCE, (DELETING,)),
        (DELETED, STARTED, Action.REMOVE, (DELETING, DELETED)),
        (DELETED, FINISHED, Action.REMOVE, (DELETING, DELETED)),
        (DELETED, DELETING, Action.REMOVE, (DELETED,)),
        (FINISHED, FINISHED, Action.KNOWN, ()),
        (STARTED, FINISHED, Action.KNOWN, ()),
        (FINISHED, DELETED, Action.KNOWN, ()),
    ],
)
def test_only_what_the_other_side_lacks_is_written(
    wanted: Any, present: Any, action: Action, states: tuple[Any, ...]
) -> None:
    key = segment_key(segment_id(0))
    there = {} if present is None else {key: segment(0, present)}
    planned = plan({key: segment(0, wanted, b"cm")}, there)
    [move] = planned["orders", TOPIC_ID, 3]
    assert (move.action, move.states) == (action, states)
    written = list(move.records())
    assert [each.state for each in written] == list(states)
    if written and isinstance(written[0], Segment):
        assert not written[0].HasField("custom_metadata")
        assert all(each.custom_metadata == b"cm" for each in written[1:])


def test_what_was_never_known_and_is_deleted_is_not_written() -> None:
    assert plan({segment_key(segment_id(0)): segment(0, DELETED)}, {}) == {}


def spanning(start_offset: int, end_offset: int, **epochs: int) -> Segment:
    """Epochs are given as `e5=100`."""
    made = segment(start_offset)
    made.end_offset = end_offset
    made.segment_leader_epochs.clear()
    made.segment_leader_epochs.update({int(key[1:]): offset for key, offset in epochs.items()})
    return made


def peaks(records: list[Record]) -> dict[int, int]:
    """Leader epoch to highest offset, of what only deleted segments say."""
    folded = fold(deepcopy(records))
    found = peaks_of_gone(folded.segments, folded.finished)
    return {each.leader_epoch: each.highest_offset for each in found}


def test_epochs_whose_segments_are_all_gone_keep_their_highest_offset() -> None:
    """K-2: the highest offset of an epoch never decreases."""
    records: list[Record] = [
        spanning(0, 99, e0=0, e1=40),
        spanning(100, 199, e1=100, e3=150),
        spanning(200, 299, e3=200),
        *(update(start, FINISHED) for start in (0, 100, 200)),
        *(update(start, state) for start in (0, 100) for state in (DELETING, DELETED)),
    ]
    assert peaks(records) == {0: 39, 1: 149}
    assert peaks([*records, update(200, DELETING)]) == {0: 39, 1: 149, 3: 299}


def test_a_copy_that_was_never_finished_says_nothing_of_its_epoch() -> None:
    assert peaks([segment(), update(0, DELETING), update(0, DELETED)]) == {}


def test_of_two_copies_that_reach_as_far_the_one_that_stays_is_enough() -> None:
    again = spanning(5, 9, e0=5)
    records: list[Record] = [segment(), again, update(0, FINISHED), update(5, FINISHED)]
    for gone in (0, 5):
        assert peaks([*records, update(gone, DELETING), update(gone, DELETED)]) == {}


@pytest.mark.parametrize(
    ("wanted", "present", "action", "states"),
    [
        (DELETED, None, Action.REMEMBER, (STARTED, FINISHED, DELETING, DELETED)),
        (DELETING, None, Action.ADD, (STARTED, FINISHED, DELETING)),
        (DELETED, STARTED, Action.REMOVE, (FINISHED, DELETING, DELETED)),
        (DELETED, FINISHED, Action.REMOVE, (DELETING, DELETED)),
        (DELETED, DELETED, Action.KNOWN, ()),
    ],
)
def test_a_segment_that_is_a_peak_is_finished_before_it_is_gone(
    wanted: Any, present: Any, action: Action, states: tuple[Any, ...]
) -> None:
    key = segment_key(segment_id(0))
    there = {} if present is None else {key: segment(0, present)}
    [move] = plan({key: segment(0, wanted)}, there, {key})["orders", TOPIC_ID, 3]
    assert (move.action, move.states) == (action, states)
