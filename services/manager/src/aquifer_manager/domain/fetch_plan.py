"""What a tiered fetch asks for, and the decision about it."""

from dataclasses import dataclass, field

from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.segment import IsolationLevel, RemoteLogSegmentMetadata

__all__ = ["FetchPlan", "FetchRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """What a broker asks for a consumer.

    Attributes:
        leader_epoch: that the broker's lineage has for `fetch_offset`.
        max_bytes: at least 1.
        lineage: the leader's epochs, for holes at a segment's end and for aborted transactions.
        reach_bytes: how far a reusable plan should reach; 0: none is wanted.
        fresh: what an earlier plan named is gone; nothing remembered will do.
        local_log_start_offset: what lies at or after it the broker looks up itself; None: it did not tell.
    """

    topic_id_partition: TopicIdPartition
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    min_one_batch: bool = True
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    lineage: tuple[LeaderEpochEntry, ...] = ()
    reach_bytes: int = 0
    fresh: bool = False
    local_log_start_offset: int | None = None

    def epochs(self) -> LeaderEpochCache:
        """The lineage; a caller that gave none means the one epoch."""
        return LeaderEpochCache(
            self.lineage or (LeaderEpochEntry(self.leader_epoch, self.fetch_offset),)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What is read: `segment` from `fetch_offset` on, at most `max_bytes`.

    Attributes:
        segment: None when no batch at or after the offset is remote.
        fetch_offset: differs from the request's after a hole.
        aborted: aborted transactions of remote segments in the range.
        next_segment: for read-ahead, when the offset is near the segment's end.
        reusable: whether `segment` and `following` may be read on from without another plan, see the contract.
        following: segments behind this one, without a gap.
    """

    segment: RemoteLogSegmentMetadata | None
    fetch_offset: int
    max_bytes: int
    aborted: tuple[AbortedTransaction, ...] = field(default=())
    next_segment: RemoteLogSegmentMetadata | None = None
    reusable: bool = False
    following: tuple[RemoteLogSegmentMetadata, ...] = ()
