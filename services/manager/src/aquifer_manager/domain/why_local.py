"""Why a segment is on a broker's disk, alone or still: decided from facts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aquifer_manager.domain.ports import LogDescription
from aquifer_manager.domain.tasks import Deferral, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why_facts import (
    Unknown,
    WhyFacts,
    next_run,
    paused_text,
    reason_of_error,
)
from aquifer_manager.domain.why_reasons import Explanation, WhyQuestion, WhyReason

__all__ = ["LocalSegment", "explain_local", "local_segments"]

_AS_TOTAL: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """A segment on the leader's disk; the active one ends at the log's end and may be empty.

    Attributes:
        bytes_after: bytes of the local log behind it.
    """

    start_offset: int
    end_offset: int
    active: bool
    max_timestamp_ms: int
    bytes_after: int


def local_segments(log: LogDescription) -> Iterator[LocalSegment]:
    """The leader's local segments, oldest first, the active one last."""
    left = log.local_bytes
    start = log.local_log_start_offset
    for segment in log.segments:
        left -= segment.size_bytes
        start = segment.end_offset + 1
        yield LocalSegment(
            start_offset=segment.base_offset,
            end_offset=segment.end_offset,
            active=False,
            max_timestamp_ms=segment.max_timestamp_ms,
            bytes_after=max(left, 0),
        )
    yield LocalSegment(
        start_offset=start,
        end_offset=log.log_end_offset - 1,
        active=True,
        max_timestamp_ms=-1,
        bytes_after=0,
    )


def explain_local(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation:
    """Why a local segment is local: not remote yet, or kept on disk although it is."""
    for answer in _ANSWERS:
        found = answer(facts, log, segment)
        if found is not None:
            return found
    return _waiting(facts, segment)


def _said(segment: LocalSegment, reason: WhyReason, text: str) -> Explanation:
    return Explanation(
        question=WhyQuestion.STILL_LOCAL,
        reason=reason,
        text=text,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
    )


def _not_tiered(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    del log
    config = facts.config
    if config is None or config.remote_storage_enable:
        return None
    return _said(segment, WhyReason.TIERING_DISABLED, "remote.storage.enable is false")


def _remote(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    if segment.active or segment.end_offset > facts.highest_remote_offset():
        return None
    if segment.end_offset > log.highest_remote_offset:
        text = f"remote up to {facts.highest_remote_offset()}, the broker knows of {log.highest_remote_offset}"
        return _said(segment, WhyReason.BROKER_NOT_TOLD, text)
    kept = None if facts.config is None else _kept_by(facts.config, segment, facts.now_ms)
    if kept is None:
        text = "local retention has reached it; the broker's next check deletes it"
        return _said(segment, WhyReason.LOCAL_RETENTION_DUE, text)
    return _said(segment, WhyReason.LOCAL_RETENTION_NOT_REACHED, f"it is remote, and {kept}")


def _kept_by(config: TopicConfig, segment: LocalSegment, now_ms: int) -> str | None:
    """What keeps a remote segment on the broker's disk; None: nothing does."""
    limit_ms = _local(config.local_retention_ms, config.retention_ms)
    limit_bytes = _local(config.local_retention_bytes, config.retention_bytes)
    age_ms = now_ms - segment.max_timestamp_ms
    if limit_ms >= 0 and segment.max_timestamp_ms >= 0 and age_ms > limit_ms:
        return None
    if 0 <= limit_bytes <= segment.bytes_after:
        return None
    parts = []
    if limit_ms >= 0:
        parts.append(f"its newest record is {age_ms} ms old, of local retention {limit_ms} ms")
    if limit_bytes >= 0:
        parts.append(
            f"{segment.bytes_after} bytes follow it, of local retention {limit_bytes} bytes"
        )
    return " and ".join(parts) or "there is no local retention"


def _local(local: int, total: int) -> int:
    return total if local == _AS_TOTAL else local


def _not_to_be_copied(
    facts: WhyFacts, log: LogDescription, segment: LocalSegment
) -> Explanation | None:
    config = facts.config
    if segment.active:
        text = "it is the active segment; only rolled segments are copied"
        return _said(segment, WhyReason.ACTIVE_SEGMENT, text)
    if config is not None and config.remote_log_copy_disable:
        return _said(segment, WhyReason.COPY_DISABLED, "remote.log.copy.disable is true")
    if segment.end_offset < log.log_start_offset:
        text = f"the log starts at {log.log_start_offset}"
        return _said(segment, WhyReason.BELOW_LOG_START, text)
    if segment.end_offset + 1 > log.last_stable_offset:
        text = f"the last stable offset is {log.last_stable_offset}, high watermark {log.high_watermark}"
        return _said(segment, WhyReason.NOT_STABLE, text)
    return None


def _fenced(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    del log
    work = facts.work
    if work is not None and work.fenced:
        text = "metadata knows a newer leader; waiting for it to be announced"
        return _said(segment, WhyReason.LEADER_FENCED, text)
    return None


def _paused(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    del log
    if facts.pauses:
        return _said(segment, WhyReason.PAUSED, paused_text(facts.pauses))
    return None


def _on_its_way(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    del log
    work = facts.work
    if work is None:
        return None
    stored = [each.metadata.start_offset for each in work.uncommitted.values()]
    if segment.start_offset in stored:
        text = "it is stored, and metadata has not confirmed it yet"
        return _said(segment, WhyReason.COPY_UNCONFIRMED, text)
    if segment.start_offset in (each.start_offset for each in work.stored.values()):
        text = "it is stored, and finished in metadata as soon as all older segments are"
        return _said(segment, WhyReason.BEHIND_OLDER_SEGMENTS, text)
    under_way = work.in_progress - work.failed.keys()
    uploads = [each.start_offset for key, each in work.begun.items() if key in under_way]
    if segment.start_offset in uploads:
        return _said(segment, WhyReason.COPYING, "it is being uploaded")
    return None


def _failing(facts: WhyFacts, log: LogDescription, segment: LocalSegment) -> Explanation | None:
    del log
    task = facts.tasks.get(TaskType.COPY)
    if task is None or not task.last_error_reason:
        return None
    return Explanation(
        question=WhyQuestion.STILL_LOCAL,
        reason=reason_of_error(task.last_error_reason, WhyReason.COPY_FAILING),
        text=f"{task.consecutive_failures} copy runs failed, the next is {next_run(task)}: {task.last_error}",
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        for_ms=task.without_success_ms,
        last_error_reason=task.last_error_reason,
        last_error=task.last_error,
    )


_Answer = Callable[[WhyFacts, LogDescription, LocalSegment], Explanation | None]
_ANSWERS: Final[tuple[_Answer, ...]] = (
    _not_tiered,
    _remote,
    _not_to_be_copied,
    _fenced,
    _on_its_way,
    _paused,
    _failing,
)


def _waiting(facts: WhyFacts, segment: LocalSegment) -> Explanation:
    task = facts.tasks.get(TaskType.COPY)
    if task is None:
        text = "this manager has no copy task for it; it comes with the leader's announcement"
        return _said(segment, WhyReason.LEADER_UNKNOWN, text)
    first = facts.highest_remote_offset() + 1
    if segment.start_offset > first and not isinstance(facts.log, Unknown):
        first = max(first, facts.log.log_start_offset, facts.log.local_log_start_offset)
    if segment.start_offset > first:
        text = f"copies go on at offset {first}; the copy task is {next_run(task)}"
        return _said(segment, WhyReason.BEHIND_OLDER_SEGMENTS, text)
    if task.deferred is Deferral.COPY_QUOTA and not task.running:
        text = f"the bytes that may be copied in a second are spent; its turn is {next_run(task)}"
        return _said(segment, WhyReason.WAITING_FOR_COPY_QUOTA, text)
    if task.running or task.deferred or task.next_run_in_ms == 0:
        text = "its copy is due and waits for its turn"
        if task.deferred:
            text = "its broker has as many uploads under way as it may"
        return _said(segment, WhyReason.WAITING_FOR_COPY_SLOT, text)
    text = f"the copy task is {next_run(task)}"
    return _said(segment, WhyReason.WAITING_FOR_NEXT_RUN, text)
