"""Which local segments retention removes: pure decisions (K-3.5)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "LocalRetentionPolicy",
    "RetentionDecision",
    "RetentionReason",
    "SegmentFacts",
    "decide_local_retention",
]


class RetentionReason(StrEnum):
    """Why local segments go."""

    LOG_START_OFFSET = "log start offset"
    SIZE = "retention size"
    TIME = "retention time"


class SegmentFacts(NamedTuple):
    """A segment as retention sees it. `next_base_offset` is None for the active segment."""

    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetentionPolicy:
    """What decides; negative limits: unlimited.

    Attributes:
        retention_ms, retention_bytes: the local ones when segments are copied, the total ones otherwise.
        delete: whether time and size count at all (`cleanup.policy`).
        copied_to_remote: segments may go only once they are in remote storage or below the log start.
        start_offset: local log start when segments are copied, else log start.
        size_bytes: of all local segments together.
    """

    retention_ms: int
    retention_bytes: int
    delete: bool
    copied_to_remote: bool
    log_start_offset: int
    start_offset: int
    high_watermark: int
    log_end_offset: int
    highest_offset_in_remote_storage: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """Result of one rule.

    Attributes:
        segments: how many of the oldest segments go.
        roll: the active segment breaches the limit; rolled now, it can be copied and then go.
    """

    reason: RetentionReason
    segments: int
    roll: bool


def decide_local_retention(
    segments: Iterable[SegmentFacts],
    policy: LocalRetentionPolicy,
    reason: RetentionReason,
    now_ms: int,
) -> RetentionDecision:
    """Applies one of the three rules; Kafka applies log start, then size, then time, each to what the one before left.

    Segments are looked at from the oldest up to the first that stays, however many follow.

    Source: `UnifiedLog.deleteOldSegments`, `deletableSegments`, `isSegmentEligibleForDeletion`.
    """
    breaches = _rule(policy, reason, now_ms)
    count, roll = 0, False
    for segment in segments:
        upper_bound = (
            policy.log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        )
        if policy.high_watermark < upper_bound or not breaches(segment):
            break
        is_active = segment.next_base_offset is None
        if is_active and policy.copied_to_remote and segment.size_bytes:
            roll = True
        if (is_active and not segment.size_bytes) or not _eligible(segment, upper_bound, policy):
            break
        count += 1
    return RetentionDecision(reason=reason, segments=count, roll=roll)


def _eligible(segment: SegmentFacts, upper_bound: int, policy: LocalRetentionPolicy) -> bool:
    if not policy.copied_to_remote:
        return True
    if 0 < upper_bound <= policy.highest_offset_in_remote_storage + 1:
        return True
    following = segment.next_base_offset
    return following is not None and policy.log_start_offset >= following


def _rule(
    policy: LocalRetentionPolicy, reason: RetentionReason, now_ms: int
) -> Callable[[SegmentFacts], bool]:
    if reason is RetentionReason.LOG_START_OFFSET:
        return lambda segment: (
            segment.next_base_offset is not None and segment.next_base_offset <= policy.start_offset
        )
    if not policy.delete:
        return lambda _: False
    if reason is RetentionReason.SIZE:
        return _size_rule(policy)
    if policy.retention_ms < 0:
        return lambda _: False
    return lambda segment: now_ms - segment.largest_timestamp_ms > policy.retention_ms


def _size_rule(policy: LocalRetentionPolicy) -> Callable[[SegmentFacts], bool]:
    surplus = policy.size_bytes - policy.retention_bytes
    if policy.retention_bytes < 0 or surplus < 0:
        return lambda _: False

    def breaches(segment: SegmentFacts) -> bool:
        nonlocal surplus
        if surplus < segment.size_bytes:
            return False
        surplus -= segment.size_bytes
        return True

    return breaches
