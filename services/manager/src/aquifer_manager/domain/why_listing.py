"""What explanations need of a partition's listing, read once and without holding it: it may have a million segments."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.leader_epoch import (
    build_filtered_leader_epoch_map,
    is_segment_within_leader_epochs,
)
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.ports import LogDescription
from aquifer_manager.domain.streams import closing

__all__ = [
    "Choice",
    "Holding",
    "Listing",
    "MostOverdue",
    "OneSegment",
    "age_mark_ms",
    "is_in_lineage",
    "read_listing",
]

_MOST_CHOSEN: Final = 1000
_MOST_UNFINISHED: Final = 20
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

Choice = Callable[[RemoteLogSegmentMetadata], bool]
"""Whether a segment is one that is asked about; they are told by start offset."""


@dataclass(slots=True, kw_only=True)
class Listing:
    """What was found, by start offset.

    Attributes:
        chosen: those asked about, at most 1,000.
        copying: start offset of the first copy in progress here; None: there is none.
        staying: the first finished one of the leader's lineage that time retention does not reach; None: none, or not known.
    """

    chosen: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    copying: int | None = None
    staying: RemoteLogSegmentMetadata | None = None


class MostOverdue:
    """The first unfinished segments, and the first finished one."""

    def __init__(self) -> None:
        self._unfinished = self._finished = 0

    def __call__(self, segment: RemoteLogSegmentMetadata) -> bool:
        """See `Choice`."""
        if segment.state is _FINISHED:
            self._finished += 1
            return self._finished == 1
        self._unfinished += 1
        return self._unfinished <= _MOST_UNFINISHED


@dataclass(frozen=True, slots=True)
class Holding:
    """Segments that hold an offset."""

    offset: int

    def __call__(self, segment: RemoteLogSegmentMetadata) -> bool:
        """See `Choice`."""
        return segment.start_offset <= self.offset <= segment.end_offset


@dataclass(frozen=True, slots=True)
class OneSegment:
    """A segment by its id."""

    segment_id: KafkaUuid

    def __call__(self, segment: RemoteLogSegmentMetadata) -> bool:
        """See `Choice`."""
        return segment.segment_id.id == self.segment_id


async def read_listing(
    metadata: RemoteLogMetadataManager,
    tip: TopicIdPartition,
    choice: Choice,
    *,
    work: PartitionWork | None = None,
    log: LogDescription | None = None,
    kept_from_ms: int | None = None,
    to_offset: int | None = None,
) -> Listing:
    """Reads a listing once.

    Args:
        metadata: lists.
        tip: the partition; one that is gone has no segments.
        choice: what is asked about.
        work: knows the copies in progress.
        log: the leader's.
        kept_from_ms: time retention does not reach what is newer; None: it reaches nothing, or is not known.
        to_offset: what starts above does not matter; None: all does.

    Raises:
        AquiferError: metadata did not answer.
    """
    found = Listing()
    lineage = None if log is None else build_filtered_leader_epoch_map(log.lineage())
    try:
        async with closing(metadata.list_remote_log_segments(tip)) as listing:
            async for segment in listing:
                if to_offset is not None and segment.start_offset > to_offset:
                    break
                if len(found.chosen) < _MOST_CHOSEN and choice(segment):
                    found.chosen.append(segment)
                if found.copying is None and work and segment.segment_id.id in work.in_progress:
                    found.copying = segment.start_offset
                if (
                    found.staying is None
                    and kept_from_ms is not None
                    and log is not None
                    and lineage is not None
                    and segment.state is _FINISHED
                    and age_mark_ms(segment) > kept_from_ms
                    and _is_within(segment, log, lineage)
                ):
                    found.staying = segment
    except RemoteResourceNotFoundError as error:
        if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
            raise
    return found


def is_in_lineage(log: LogDescription, segment: RemoteLogSegmentMetadata) -> bool:
    """Whether a segment belongs to what the leader's log was written as."""
    return _is_within(segment, log, build_filtered_leader_epoch_map(log.lineage()))


def _is_within(
    segment: RemoteLogSegmentMetadata, log: LogDescription, lineage: dict[int, int]
) -> bool:
    return is_segment_within_leader_epochs(
        segment_leader_epochs=segment.segment_leader_epochs,
        end_offset=segment.end_offset,
        log_end_offset=log.log_end_offset,
        lineage=lineage,
    )


def age_mark_ms(segment: RemoteLogSegmentMetadata) -> int:
    """The time that retention judges by."""
    known = segment.max_timestamp_ms >= 0
    return segment.max_timestamp_ms if known else segment.event_timestamp_ms
