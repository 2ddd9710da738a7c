"""Why a remote segment is not deleted yet: decided from facts."""

from aquifer_core.errors import ErrorReason
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.tasks import TaskState, TaskType
from aquifer_manager.domain.why_facts import (
    Unknown,
    WhyFacts,
    next_run,
    paused_text,
    reason_of_error,
)
from aquifer_manager.domain.why_listing import age_mark_ms, is_in_lineage
from aquifer_manager.domain.why_reasons import Explanation, WhyQuestion, WhyReason

__all__ = ["explain_not_deleted"]

_State = RemoteLogSegmentState


def explain_not_deleted(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation:
    """Why metadata still lists a segment."""
    deletion = facts.tasks.get(TaskType.PARTITION_DELETION)
    failed = _failing(facts, segment)
    if failed is not None:
        return failed
    if deletion is not None:
        text = "remote data of the whole partition is being deleted"
        return _said(segment, WhyReason.PARTITION_DELETION, text, deletion)
    if facts.config is not None and not facts.config.remote_storage_enable:
        text = "the topic is not tiered any more; every manager looks for such partitions and deletes what they have"
        return _said(segment, WhyReason.PARTITION_DELETION, text)
    if segment.state is _State.DELETE_SEGMENT_STARTED:
        text = "its deletion has begun and goes on with the next expiration"
        pending = _said(segment, WhyReason.DELETION_PENDING, text, _expiration(facts))
        return _held_up(facts, segment) or pending
    if segment.state is _State.COPY_SEGMENT_STARTED:
        return _unfinished_copy(facts, segment)
    return _finished(facts, segment)


def _said(
    segment: RemoteLogSegmentMetadata,
    reason: WhyReason,
    text: str,
    task: TaskState | None = None,
    for_ms: int | None = None,
) -> Explanation:
    failing = task is not None and bool(task.last_error_reason)
    return Explanation(
        question=WhyQuestion.NOT_DELETED,
        reason=reason,
        text=text,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        segment_id=segment.segment_id.id,
        for_ms=task.without_success_ms if failing and task is not None else for_ms,
        last_error_reason=task.last_error_reason if task is not None else "",
        last_error=task.last_error if task is not None else "",
    )


def _failing(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation | None:
    known = facts.failing.get(segment.segment_id.id)
    if known is None:
        return None
    store = known.reason == ErrorReason.OBJECT_STORE_UNAVAILABLE.value
    return Explanation(
        question=WhyQuestion.NOT_DELETED,
        reason=WhyReason.STORE_UNREACHABLE if store else WhyReason.DELETION_FAILING,
        text=f"its deletion failed {known.attempts} times, last with {known.reason}",
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        segment_id=segment.segment_id.id,
        for_ms=facts.now_ms - known.first_failure_ms,
        last_error_reason=known.reason,
    )


def _unfinished_copy(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation:
    work, segment_id = facts.work, segment.segment_id.id
    age_ms = max(0, facts.now_ms - segment.event_timestamp_ms)
    if work is not None and segment_id in work.in_progress - work.failed.keys():
        return _said(segment, WhyReason.COPYING, f"begun {age_ms} ms ago", for_ms=age_ms)
    if work is not None and segment_id in work.failed:
        text = "the copy failed and is taken back by the next run"
        pending = _said(segment, WhyReason.DELETION_PENDING, text, facts.tasks.get(TaskType.COPY))
        return _held_up(facts, segment) or pending
    if age_ms < facts.copy_abandoned_after_ms:
        text = f"nobody is known to copy it; begun {age_ms} ms ago, garbage at {facts.copy_abandoned_after_ms} ms"
        return _said(segment, WhyReason.COPY_DANGLING_YOUNG, text, for_ms=age_ms)
    return _held_up(facts, segment) or _due(facts, segment, "COPY_ABANDONED")


def _finished(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation:
    held_up = _held_up(facts, segment)
    if facts.plan is None:
        unknown = facts.log if isinstance(facts.log, Unknown) else facts.listing
        if held_up is None and isinstance(unknown, Unknown):
            return _said(segment, unknown.reason, unknown.text)
        return held_up or _due(facts, segment, "retention is not known")
    for candidate in facts.plan.candidates:
        if candidate.metadata.segment_id == segment.segment_id:
            return held_up or _due(facts, segment, candidate.reason.value)
    new_start = facts.plan.new_log_start_offset
    if new_start is not None and segment.end_offset < new_start:
        return held_up or _due(facts, segment, "older segments go first")
    return _kept(facts, segment)


def _held_up(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation | None:
    """What keeps expirations from running or from getting through."""
    if isinstance(facts.log, Unknown) and facts.log.reason is WhyReason.LEADER_UNKNOWN:
        return _said(segment, facts.log.reason, facts.log.text)
    if facts.work is not None and facts.work.fenced:
        text = "metadata knows a newer leader; waiting for it to be announced"
        return _said(segment, WhyReason.LEADER_FENCED, text)
    if facts.pauses:
        return _said(segment, WhyReason.PAUSED, paused_text(facts.pauses))
    task = _expiration(facts)
    if task is not None and task.last_error_reason:
        reason = reason_of_error(task.last_error_reason, WhyReason.EXPIRATION_FAILING)
        text = f"{task.consecutive_failures} expirations failed: {task.last_error}"
        return _said(segment, reason, text, task)
    return None


def _due(facts: WhyFacts, segment: RemoteLogSegmentMetadata, why: str) -> Explanation:
    task = _expiration(facts)
    when = "has no task here" if task is None else f"is {next_run(task)}"
    return _said(segment, WhyReason.DELETION_DUE, f"{why}; the expiration {when}", task)


def _kept(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> Explanation:
    """Why retention does not choose a finished segment."""
    log, retention = facts.log, facts.retention
    copying = None if isinstance(facts.listing, Unknown) else facts.listing.copying
    if copying is not None and segment.start_offset >= copying:
        text = f"retention goes no further than the copy in progress at {copying}"
        return _said(segment, WhyReason.BEHIND_COPY_IN_PROGRESS, text)
    if not isinstance(log, Unknown) and not is_in_lineage(log, segment):
        text = f"the leader's log ends at {log.log_end_offset}, epochs {log.lineage()}"
        return _said(segment, WhyReason.BEYOND_LOG_END, text)
    if retention is None or (retention.retention_ms < 0 and retention.retention_bytes < 0):
        return _said(segment, WhyReason.RETENTION_UNLIMITED, "neither time nor size limits it")
    first = _stays_first(facts, segment, retention.retention_ms)
    if first is not None:
        text = f"older segments go first, and the one at offset {first.start_offset} stays: {_age(facts, first)}"
        return _said(segment, WhyReason.BEHIND_OLDER_SEGMENTS, text)
    text = (
        f"{_age(facts, segment)}; retention is {retention.retention_ms} ms and "
        f"{retention.retention_bytes} bytes (negative: none)"
    )
    return _said(segment, WhyReason.RETENTION_NOT_REACHED, text)


def _stays_first(
    facts: WhyFacts, segment: RemoteLogSegmentMetadata, retention_ms: int
) -> RemoteLogSegmentMetadata | None:
    """The segment at which time retention stops before it comes to one that is old enough; None: it is not old enough itself."""
    listing = facts.listing
    if isinstance(facts.log, Unknown) or isinstance(listing, Unknown) or retention_ms < 0:
        return None
    if age_mark_ms(segment) > facts.now_ms - retention_ms or listing.staying is None:
        return None
    return listing.staying if listing.staying.start_offset < segment.start_offset else None


def _age(facts: WhyFacts, segment: RemoteLogSegmentMetadata) -> str:
    age_ms = facts.now_ms - age_mark_ms(segment)
    if segment.max_timestamp_ms < 0:
        return f"the time of its newest record is unknown, it was copied {age_ms} ms ago"
    if age_ms < 0:
        return f"its newest record is {-age_ms} ms in the future"
    return f"its newest record is {age_ms} ms old"


def _expiration(facts: WhyFacts) -> TaskState | None:
    return facts.tasks.get(TaskType.EXPIRATION)
