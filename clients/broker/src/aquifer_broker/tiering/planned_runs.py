"""Plans that more than one read may go by: a reader that reads on asks the manager once for many reads."""

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import IsolationLevel, RemoteLogSegmentMetadata
from aquifer_core.segment_run import MAX_RUN_SEGMENTS, bytes_left

from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch

__all__ = ["PlannedRuns"]

_TTL_S: Final = 5.0
_MAX_PARTITIONS: Final = 2000
_RUNS_PER_PARTITION: Final = 4
_REACH_READS: Final = 4
_MIN_REACH_BYTES: Final = 8 << 20
_MAX_REACH_BYTES: Final = 32 << 20


class _Span(NamedTuple):
    """A segment, and its offsets of the leader epoch."""

    first_offset: int
    last_offset: int
    segment: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    asked: RemoteFetch
    plan: FetchPlan
    spans: tuple[_Span, ...]
    goes_on: bool
    until_s: float

    def serves(self, request: RemoteFetch) -> bool:
        asked = self.asked
        return (
            asked.leader_epoch == request.leader_epoch
            and asked.local_log_start_offset == request.local_log_start_offset
            and asked.isolation in (request.isolation, IsolationLevel.READ_COMMITTED)
            and asked.lineage == request.lineage
        )

    def plan_of(self, request: RemoteFetch) -> FetchPlan | None:
        offset, spans = request.fetch_offset, self.spans
        number = bisect_right(spans, offset, key=lambda span: span.first_offset) - 1
        if number < 0 or offset > spans[number].last_offset:
            return None
        segment, is_last = spans[number].segment, number + 1 == len(spans)
        if is_last and self.goes_on and bytes_left(segment, offset) < 2 * request.max_bytes:
            return None  # what follows is worth reading ahead of
        return replace(
            self.plan,
            segment=segment,
            fetch_offset=offset,
            max_bytes=request.max_bytes,
            next_segment=None if is_last else spans[number + 1].segment,
        )


class PlannedRuns:
    """Reusable plans of the last few seconds.

    A plan says which segments follow each other, and that nothing was aborted in them. Both hold for reads with the lineage and the local
    log start that the question came with. What was below that log start was remote when metadata was asked, so an abort marker there
    was seen; whatever is not below it is still local when a read is done, if the log start is the same then, and is looked up there
    (`TieredRemoteLog`). A segment may be deleted meanwhile: who does not find one forgets the partition's plans and asks again.
    """

    def __init__(
        self, *, ttl_s: float = _TTL_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s = ttl_s
        self._now_s = now_s
        self._runs: OrderedDict[TopicIdPartition, list[_Run]] = OrderedDict()

    @staticmethod
    def reach_bytes(request: RemoteFetch) -> int:
        """How far a plan should reach: a reader whose reads become larger will go on for longer."""
        return max(_MIN_REACH_BYTES, min(_REACH_READS * request.max_bytes, _MAX_REACH_BYTES))

    def plan(self, request: RemoteFetch) -> FetchPlan | None:
        """The plan of a read, if one that is known covers it."""
        now_s = self._now_s()
        for run in self._runs.get(request.topic_id_partition, ()):
            if now_s < run.until_s and run.serves(request):
                plan = run.plan_of(request)
                if plan is not None:
                    return plan
        return None

    def begin(self) -> float:
        """When what is planned now has to be planned anew; to be asked before the manager is."""
        return self._now_s() + self._ttl_s

    def keep(self, request: RemoteFetch, plan: FetchPlan, until_s: float) -> None:
        """Remembers an answer, if it is of use to more than the one read."""
        if not plan.reusable or plan.segment is None:
            return
        spans = tuple(_spans(request.leader_epoch, plan.segment, *plan.following))
        if not spans:
            return
        covered = bytes_left(plan.segment, plan.fetch_offset)
        covered += sum(each.segment_size_bytes for each in plan.following)
        run = _Run(
            asked=request,
            plan=replace(plan, following=()),
            spans=spans,
            goes_on=covered >= self.reach_bytes(request) or len(spans) >= MAX_RUN_SEGMENTS,
            until_s=until_s,
        )
        tip = request.topic_id_partition
        now_s = self._now_s()
        others = [
            each
            for each in self._runs.pop(tip, ())
            if now_s < each.until_s and each.spans[0].first_offset != spans[0].first_offset
        ]
        self._runs[tip] = [run, *others][:_RUNS_PER_PARTITION]
        if len(self._runs) > _MAX_PARTITIONS:
            self._runs.popitem(last=False)

    def forget(self, topic_id_partition: TopicIdPartition) -> None:
        """Something that a plan named is gone."""
        self._runs.pop(topic_id_partition, None)


def _spans(leader_epoch: int, *segments: RemoteLogSegmentMetadata) -> Iterator[_Span]:
    for segment in segments:
        bounds = segment.epoch_ranges().get(leader_epoch)
        if bounds is None:
            return
        yield _Span(*bounds, segment)
