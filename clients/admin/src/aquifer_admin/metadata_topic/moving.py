"""What one keeper of metadata has to be told so that it knows what the other knows."""

from collections.abc import Iterable, Iterator, Mapping
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
    KNOWN = "known"
    """Nothing is to be done."""


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


def fold(records: Iterable[Record]) -> dict[SegmentKey, Segment]:
    """The last state of each segment, deleted ones included; records of a partition must be in their order.

    As in Kafka, a change of an unknown segment is dropped, and so is a step back.
    """
    found: dict[SegmentKey, Segment] = {}
    for record in records:
        if isinstance(record, PartitionDelete):
            if record.finished:
                _delete_partition(found, record)
        elif isinstance(record, Segment):
            found.setdefault(segment_key(record.segment_id), record)
        else:
            _apply(found.get(segment_key(record.segment_id)), record)
    return found


def plan(
    wanted: Mapping[SegmentKey, Segment], present: Mapping[SegmentKey, Segment]
) -> dict[PartitionKey, list[Move]]:
    """What is to be written where `present` is, so that it knows what `wanted` says; by partition, in offset order."""
    planned: dict[PartitionKey, list[Move]] = {}
    for key, segment in sorted(wanted.items(), key=lambda item: item[1].start_offset):
        there = present.get(key)
        if there is None and segment.state == DELETED:
            continue
        planned.setdefault(partition_key(segment), []).append(_move(segment, there))
    return planned


def _move(segment: Segment, there: Segment | None) -> Move:
    before = there.state if there is not None else 0
    states = tuple(
        state
        for state in (STARTED, FINISHED, DELETING, DELETED)
        # Nothing needs to be copied any more to be deleted.
        if before < state <= segment.state and not (state == FINISHED and segment.state > FINISHED)
    )
    if not states:
        action = Action.KNOWN
    elif there is None:
        action = Action.ADD
    else:
        action = Action.REMOVE if segment.state == DELETED else Action.ADVANCE
    return Move(segment=segment, action=action, states=states)


def _apply(segment: Segment | None, update: Update) -> None:
    if segment is None or update.state < segment.state:
        return
    segment.state = update.state
    segment.broker_id = update.broker_id
    segment.event_timestamp_ms = update.event_timestamp_ms
    segment.ClearField("custom_metadata")
    if update.HasField("custom_metadata"):
        segment.custom_metadata = update.custom_metadata


def _delete_partition(found: Mapping[SegmentKey, Segment], deleted: PartitionDelete) -> None:
    for (topic_id, partition, _), segment in found.items():
        if (topic_id, partition) == (deleted.topic_id, deleted.partition):
            segment.state = DELETED


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
