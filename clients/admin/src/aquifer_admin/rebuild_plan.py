"""What has to be written so that metadata knows every segment that the store holds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aquifer.common.v1 import segment_pb2

STARTED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_STARTED
FINISHED: Final = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED

# A copy that began longer ago is none that a broker is about to finish by itself.
ABANDONED_AFTER_MS: Final = 3_600_000

PartitionKey = tuple[str, str, int]


class Action(StrEnum):
    """What becomes of a stored segment."""

    ADD = "add"
    """Metadata does not know it: it is added and finished."""
    FINISH = "finish"
    """Metadata knows it as begun long ago, as an interrupted rebuild leaves it: it is finished."""
    KNOWN = "known"
    """Metadata knows it, in whatever state: nothing is done."""
    SUPERSEDED = "superseded"
    """Another segment of the same lineage holds all of its offsets: nothing is done; a scrub deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """A stored segment and what becomes of it."""

    stored: segment_pb2.StoredSegment
    action: Action

    @property
    def metadata(self) -> segment_pb2.RemoteLogSegmentMetadata:
        """The segment as it was copied."""
        return self.stored.metadata


def partition_key(metadata: segment_pb2.RemoteLogSegmentMetadata) -> PartitionKey:
    """Names the partition: topic, topic id, number."""
    where = metadata.segment_id.topic_id_partition
    return where.topic, where.topic_id, where.partition


def by_partition(
    stored: Iterable[segment_pb2.StoredSegment],
) -> dict[PartitionKey, list[segment_pb2.StoredSegment]]:
    """Stored segments of each partition."""
    found: dict[PartitionKey, list[segment_pb2.StoredSegment]] = defaultdict(list)
    for each in stored:
        found[partition_key(each.metadata)].append(each)
    return dict(found)


def plan_partition(
    stored: Sequence[segment_pb2.StoredSegment],
    known: Sequence[segment_pb2.RemoteLogSegmentMetadata],
    now_ms: int,
) -> list[PlannedSegment]:
    """Decides about the stored segments of one partition, in the order of their start offsets.

    Args:
        stored: what the store holds of the partition.
        known: what metadata knows of it.
        now_ms: wall clock.
    """
    rows = {each.segment_id.id: each for each in known}
    kept = [each for each in known if each.state == FINISHED]
    planned = []
    # The longer of two that begin alike first: it supersedes the other.
    for each in sorted(stored, key=_longest_first):
        metadata = each.metadata
        row = rows.get(metadata.segment_id.id)
        if row is not None:
            action = _for_known(row, now_ms)
        elif any(_supersedes(other, metadata) for other in kept):
            action = Action.SUPERSEDED
        else:
            action = Action.ADD
        if action in (Action.ADD, Action.FINISH):
            kept.append(metadata)
        planned.append(PlannedSegment(stored=each, action=action))
    return planned


def _longest_first(stored: segment_pb2.StoredSegment) -> tuple[int, int, int, str]:
    metadata = stored.metadata
    return (
        metadata.start_offset,
        -metadata.end_offset,
        -metadata.event_timestamp_ms,
        metadata.segment_id.id,
    )


def _for_known(row: segment_pb2.RemoteLogSegmentMetadata, now_ms: int) -> Action:
    is_abandoned = row.event_timestamp_ms < now_ms - ABANDONED_AFTER_MS
    return Action.FINISH if row.state == STARTED and is_abandoned else Action.KNOWN


def _supersedes(
    other: segment_pb2.RemoteLogSegmentMetadata, metadata: segment_pb2.RemoteLogSegmentMetadata
) -> bool:
    start, end = metadata.start_offset, metadata.end_offset
    if not other.start_offset <= start <= end <= other.end_offset:
        return False
    return _lineage(other.segment_leader_epochs, start, end) == _lineage(
        metadata.segment_leader_epochs, start, end
    )


def _lineage(epochs: Mapping[int, int], start: int, end: int) -> dict[int, int]:
    """Leader epochs of a range of offsets, each with its first offset in the range."""
    ordered = sorted(epochs.items())
    ends = [first - 1 for _, first in ordered[1:]] + [end]
    return {
        epoch: max(first, start)
        for (epoch, first), last in zip(ordered, ends, strict=True)
        if last >= start and first <= end
    }
