"""A read of the remote part of a log, and the plan of it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.segment import IsolationLevel, RemoteLogSegmentMetadata

__all__ = ["AbortedRange", "FetchPlan", "RemoteFetch", "following"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFetch:
    """A read of the cold part. `leader_epoch` is the lineage's for the offset, `lineage` the leader's epochs.

    Attributes:
        local_log_start_offset: what is remote ends before it. What a read begun with another one lacks of aborted transactions may
            no longer be local.
        rest_bytes: of a segment that has no more left than this, and it may be more than `max_bytes`, all is read.
    """

    topic_id_partition: TopicIdPartition
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    min_one_batch: bool
    isolation: IsolationLevel
    lineage: tuple[tuple[int, int], ...]
    local_log_start_offset: int
    rest_bytes: int = 0

    @property
    def most_bytes(self) -> int:
        """The most that a read may bring, a first batch that is larger by itself apart."""
        return max(self.max_bytes, self.rest_bytes)


def following(request: RemoteFetch, offset: int) -> RemoteFetch | None:
    """The read that goes on at an offset behind one; None where the remote log ends."""
    epochs = LeaderEpochCache([LeaderEpochEntry(*entry) for entry in request.lineage])
    epoch = epochs.epoch_for_offset(offset)
    if offset >= request.local_log_start_offset or epoch is None:
        return None
    return replace(request, leader_epoch=epoch, fetch_offset=offset)


class AbortedRange(NamedTuple):
    """An aborted transaction, from its first offset to that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What a read returns, before its data.

    Attributes:
        segment: None when no batch at or after the offset is remote.
        fetch_offset: Where to read the segment; differs from the request's after a hole.
        aborted: aborted transactions that remote segments know of.
        next_segment: what follows, near the segment's end.
        reusable: whether more reads of `segment` and `following` may go by this plan, see `PlannedRuns`.
        following: segments behind this one, without a gap.
    """

    segment: RemoteLogSegmentMetadata | None
    fetch_offset: int
    max_bytes: int
    aborted: tuple[AbortedRange, ...]
    next_segment: RemoteLogSegmentMetadata | None = None
    reusable: bool = False
    following: tuple[RemoteLogSegmentMetadata, ...] = ()
