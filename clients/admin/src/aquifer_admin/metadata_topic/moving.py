"""What one keeper of metadata has to be told so that it knows what the other knows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aquifer.common.v1 import segment_pb2

from aquifer_admin.metadata_topic.records import PartitionDelete, Record, Segment, State, Update

STARTED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_STARTED
FINISHED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED
DELETING: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_STARTED
DELETED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_DELETE_SEGMENT_FINISHED

PartitionKey = tuple[str, str, int]
SegmentKey = tuple[str, int, str]
"""Topic id, partition, segment id."""


class Action(StrEnum):
    """What becomes of a segment."""

    ADD = "add"
    """The other side does not know it."""
    ADVANCE = "advance"
    """It is further here: copied there, or about to be deleted."""
    REMOVE = "remove"
    """It is deleted here and not there."""
    REMEMBER = "remember"
    """It is gone from both sides, and only it says how far its leader epoch reached."""
    KNOWN = "known"
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What records come to: the last state of each segment, deleted ones included, and whose copy was finished once."""

    segments: dict[SegmentKey, Segment]
    finished: set[SegmentKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A segment, and the states to write for it, one after the other."""

    segment: Segment
    action: Action
    states: tuple[State, ...]

    def records(self) -> Iterator[Segment | Update]:
        """What to write: the segment as begun, then changes of its state."""
        for state in self.states:
            yield _begun(self.segment) if state == STARTED else _changed(self.segment, state)


def partition_key(segment: Segment) -> PartitionKey:
    """Names the partition: topic, topic id, number."""
    where = segment.segment_id.topic_id_partition
    return where.topic, where.topic_id, where.partition


def segment_key(segment_id: segment_pb2.RemoteLogSegmentId) -> SegmentKey:
    """Names the segment."""
    where = segment_id.topic_id_partition
    return where.topic_id, where.partition, segment_id.id


def fold(records: Iterable[Record]) -> Folded:
    """What records come to; those of a partition must be in their order.

    As in Kafka, a change of an unknown segment is dropped, and so is a step back; nothing is remembered of a deleted partition.
    """
    found = Folded(segments={}, finished=set())
    for record in records:
        if isinstance(record, PartitionDelete):
            if record.finished:
                _delete_partition(found, record)
            continue
        key = segment_key(record.segment_id)
        if isinstance(record, Segment):
            found.segments.setdefault(key, record)
        else:
            _apply(found.segments.get(key), record)
        if key in found.segments and found.segments[key].state == FINISHED:
            found.finished.add(key)
    return found


def plan(
    wanted: Mapping[SegmentKey, Segment],
    present: Mapping[SegmentKey, Segment],
    peaks: Collection[SegmentKey] = (),
) -> dict[PartitionKey, list[Move]]:
    """What is to be written where `present` is, so that it knows what `wanted` says; by partition, in offset order.

    Args:
        wanted: last states on this side, deleted ones included.
        present: last states on the other side.
        peaks: those that are or will be gone, and whose finished copy the other side must have seen all the same.
    """
    planned: dict[PartitionKey, list[Move]] = {}
    for key, segment in sorted(wanted.items(), key=lambda item: item[1].start_offset):
        there = present.get(key)
        if there is None and segment.state == DELETED and key not in peaks:
            continue
        move = _move(segment, there, is_peak=key in peaks)
        planned.setdefault(partition_key(segment), []).append(move)
    return planned


def _move(segment: Segment, there: Segment | None, *, is_peak: bool) -> Move:
    before = there.state if there is not None else 0
    # Nothing needs to be copied any more to be deleted.
    skipped = FINISHED if segment.state > FINISHED and not is_peak else None
    states = tuple(
        state
        for state in (STARTED, FINISHED, DELETING, DELETED)
        if before < state <= segment.state and state != skipped
    )
    return Move(segment=segment, action=_action(segment, there, states), states=states)


def _action(segment: Segment, there: Segment | None, states: tuple[State, ...]) -> Action:
    if not states:
        return Action.KNOWN
    if segment.state == DELETED:
        return Action.REMEMBER if there is None else Action.REMOVE
    return Action.ADD if there is None else Action.ADVANCE


def _apply(segment: Segment | None, update: Update) -> None:
    if segment is None or update.state < segment.state:
        return
    segment.state = update.state
    segment.broker_id = update.broker_id
    segment.event_timestamp_ms = update.event_timestamp_ms
    segment.ClearField("custom_metadata")
    if update.HasField("custom_metadata"):
        segment.custom_metadata = update.custom_metadata


def _delete_partition(found: Folded, deleted: PartitionDelete) -> None:
    for key, segment in found.segments.items():
        if key[:2] == (deleted.topic_id, deleted.partition):
            segment.state = DELETED
            found.finished.discard(key)


def _begun(segment: Segment) -> Segment:
    begun = Segment()
    begun.CopyFrom(segment)
    begun.state = STARTED
    begun.ClearField("custom_metadata")
    return begun


def _changed(segment: Segment, state: State) -> Update:
    return Update(
        segment_id=segment.segment_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        custom_metadata=segment.custom_metadata if segment.HasField("custom_metadata") else None,
        state=state,
        broker_id=segment.broker_id,
    )
