"""What retention deletes: a pure decision over a listing of segments (K-3.4, SR-10, SR-11, SR-17)."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from aquifer_core.leader_epoch import (
    build_filtered_leader_epoch_map,
    is_segment_within_leader_epochs,
)
from aquifer_core.retention_values import (
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
)
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

__all__ = ["plan_retention"]

_Segments = list[RemoteLogSegmentMetadata]


def plan_retention(
    segments: Iterable[RemoteLogSegmentMetadata],
    lineage: Mapping[int, int],
    policy: RetentionPolicy,
    now_ms: int,
) -> RetentionPlan:
    """Decides what to delete of a partition's remote segments now.

    First, from the oldest segment upwards, what lies below the log start offset, is too old or makes the log too large, until the
    first valid segment that stays. Then what was written by leaders from before the lineage, and the remains of abandoned copies. At
    last unfinished deletions, those first that were tried longest ago: however many of them fail again and again, everything else is
    reached, and so is each of them.

    Beyond Kafka: an offset that several segments hold counts once; copies that are not finished count nothing and go only when
    abandoned; what goes because of the log start offset lowers the size that is left; what reaches beyond the leader's log end
    never goes for its lineage, since it is all that is left when a leader begins anew with an empty disk.

    Args:
        segments: everything listed for the partition, in any order.
        lineage: leader epoch -> start offset of the leader's epoch cache, unfiltered.
        policy: effective settings and state of the leader's log.
        now_ms: wall clock.
    """
    ordered = sorted(
        {segment.segment_id: segment for segment in segments}.values(), key=_deletion_order
    )
    touchable = _before_copies_in_progress(ordered, policy)
    decision = _Decision(ordered, lineage, policy, now_ms)
    expired = decision.expired(
        [
            segment
            for segment in touchable
            if _is(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        ]
    )
    candidates = [
        *expired,
        *_before_lineage(
            touchable, lineage, policy, {chosen.metadata.segment_id for chosen in expired}
        ),
        *_abandoned(touchable, policy, now_ms),
        *_unfinished(touchable),
    ]
    return RetentionPlan(
        candidates=tuple(candidates),
        new_log_start_offset=decision.new_log_start_offset,
        remote_bytes=decision.weights.total_bytes,
    )


class _Decision:
    """The walk over finished segments from the oldest upwards."""

    def __init__(
        self,
        ordered: _Segments,
        lineage: Mapping[int, int],
        policy: RetentionPolicy,
        now_ms: int,
    ) -> None:
        self._lineage = build_filtered_leader_epoch_map(lineage)
        self._policy = policy
        self._cut_off_ms = now_ms - policy.retention_ms if policy.retention_ms >= 0 else -1
        self._valid = {
            segment.segment_id
            for segment in ordered
            if _is(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
            and is_segment_within_leader_epochs(
                segment_leader_epochs=segment.segment_leader_epochs,
                end_offset=segment.end_offset,
                log_end_offset=policy.log_end_offset,
                lineage=self._lineage,
            )
        }
        self.weights = _Weights(
            [segment for segment in ordered if segment.segment_id in self._valid]
        )
        self._excess_bytes = 0
        if policy.retention_bytes >= 0:
            total_bytes = policy.local_only_bytes + self.weights.total_bytes
            self._excess_bytes = max(0, total_bytes - policy.retention_bytes)
        self._chosen_until = -1
        self._moved_until = -1

    @property
    def new_log_start_offset(self) -> int | None:
        moved_to = self._moved_until + 1
        return moved_to if moved_to > self._policy.log_start_offset else None

    def expired(self, finished: _Segments) -> list[RetentionCandidate]:
        chosen = []
        for segment in finished:
            if not any(epoch in self._lineage for epoch in segment.segment_leader_epochs):
                continue
            reason = self._reason(segment)
            if reason is not None:
                chosen.append(RetentionCandidate(metadata=segment, reason=reason))
            elif segment.segment_id in self._valid:
                break
        return chosen

    def _reason(self, segment: RemoteLogSegmentMetadata) -> RetentionReason | None:
        valid = segment.segment_id in self._valid
        freed_bytes = self.weights.between(self._chosen_until, segment.end_offset) if valid else 0
        if self._below_log_start(segment):
            self._choose(segment, freed_bytes)
            return RetentionReason.LOG_START_OFFSET_BREACH
        if not valid:
            return None
        if _age_mark_ms(segment) <= self._cut_off_ms:
            reason = RetentionReason.RETENTION_TIME
        elif 0 < self._excess_bytes >= freed_bytes:
            reason = RetentionReason.RETENTION_SIZE
        else:
            return None
        self._choose(segment, freed_bytes)
        self._moved_until = max(self._moved_until, segment.end_offset)
        return reason

    def _choose(self, segment: RemoteLogSegmentMetadata, freed_bytes: int) -> None:
        self._excess_bytes = max(0, self._excess_bytes - freed_bytes)
        self._chosen_until = max(self._chosen_until, segment.end_offset)

    def _below_log_start(self, segment: RemoteLogSegmentMetadata) -> bool:
        first_epoch = next(iter(self._lineage))
        return segment.end_offset < self._policy.log_start_offset and all(
            epoch <= first_epoch for epoch in segment.segment_leader_epochs
        )


class _Weights:
    """Bytes of a log held by segments that may overlap: each offset belongs to the first segment that holds it."""

    def __init__(self, ordered: _Segments) -> None:
        self._starts: list[int] = []
        self._pieces: list[tuple[int, int, RemoteLogSegmentMetadata]] = []
        covered_until = -1
        for segment in ordered:
            start = max(segment.start_offset, covered_until + 1)
            if start > segment.end_offset:
                continue
            self._starts.append(start)
            self._pieces.append((start, segment.end_offset, segment))
            covered_until = segment.end_offset
        self._sums = list(accumulate((_share(*piece) for piece in self._pieces), initial=0))
        self.total_bytes = self._sums[-1]

    def between(self, after: int, until: int) -> int:
        """Bytes of offsets in (after, until]."""
        return self._until(until) - self._until(after) if until > after else 0

    def _until(self, offset: int) -> int:
        index = bisect_right(self._starts, offset)
        if index == 0:
            return 0
        start, end, segment = self._pieces[index - 1]
        if offset >= end:
            return self._sums[index]
        return self._sums[index - 1] + _share(start, offset, segment)


def _share(start: int, end: int, segment: RemoteLogSegmentMetadata) -> int:
    """Bytes of a part of a segment, as if its offsets were equally large; exact for the whole."""
    offsets = segment.end_offset - segment.start_offset + 1
    return segment.segment_size_bytes * (end - start + 1) // offsets


def _deletion_order(segment: RemoteLogSegmentMetadata) -> tuple[int, int, bytes]:
    return segment.start_offset, segment.end_offset, segment.segment_id.id.raw


def _is(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> bool:
    return segment.state is state


def _age_mark_ms(segment: RemoteLogSegmentMetadata) -> int:
    """Time that decides the age: an unknown newest record is no newer than its segment's last event."""
    known = segment.max_timestamp_ms >= 0
    return segment.max_timestamp_ms if known else segment.event_timestamp_ms


def _before_copies_in_progress(ordered: _Segments, policy: RetentionPolicy) -> _Segments:
    stop = next(
        (
            segment.start_offset
            for segment in ordered
            if segment.segment_id.id in policy.in_progress
        ),
        None,
    )
    return [segment for segment in ordered if stop is None or segment.start_offset < stop]


def _unfinished(segments: _Segments) -> list[RetentionCandidate]:
    """Each attempt gives a segment's last event a new time."""
    deleting = [
        segment
        for segment in segments
        if _is(segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    ]
    return [
        RetentionCandidate(metadata=segment, reason=RetentionReason.DELETE_UNFINISHED)
        for segment in sorted(deleting, key=lambda segment: segment.event_timestamp_ms)
    ]


def _before_lineage(
    segments: _Segments,
    lineage: Mapping[int, int],
    policy: RetentionPolicy,
    chosen: set[object],
) -> list[RetentionCandidate]:
    if not lineage:
        return []
    earliest = min(lineage)
    return [
        RetentionCandidate(metadata=segment, reason=RetentionReason.NOT_IN_LINEAGE)
        for segment in segments
        if _is(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        and segment.segment_id not in chosen
        and max(segment.segment_leader_epochs) < earliest
        and segment.end_offset < policy.log_end_offset
    ]


def _abandoned(
    segments: _Segments, policy: RetentionPolicy, now_ms: int
) -> list[RetentionCandidate]:
    return [
        RetentionCandidate(metadata=segment, reason=RetentionReason.COPY_ABANDONED)
        for segment in segments
        if _is(segment, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        and now_ms - segment.event_timestamp_ms > policy.copy_abandoned_after_ms
    ]
