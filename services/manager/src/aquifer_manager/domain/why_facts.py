"""Everything that explanations are derived from, collected once; what could not be had is an error, not an empty answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aquifer_core.errors import AquiferError, ErrorReason
from aquifer_core.ids import KafkaUuid
from aquifer_core.ports import RetentionPlan
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.task_pauses import TaskPause

from aquifer_manager.domain.deletion_failures import FailedDeletion
from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.ports import LogDescription
from aquifer_manager.domain.tasks import TaskState, TaskType
from aquifer_manager.domain.topic_config import EffectiveRetention, TopicConfig
from aquifer_manager.domain.why_listing import Listing
from aquifer_manager.domain.why_reasons import WhyReason

__all__ = ["Unknown", "WhyFacts", "next_run", "paused_text", "reason_of_error"]

_REASONS: Final = {
    ErrorReason.OBJECT_STORE_UNAVAILABLE: WhyReason.STORE_UNREACHABLE,
    ErrorReason.DATABASE_UNAVAILABLE: WhyReason.METADATA_UNREACHABLE,
    ErrorReason.NOT_LEADER: WhyReason.LEADERSHIP_MOVED,
    ErrorReason.STALE_LEADER_EPOCH: WhyReason.LEADER_FENCED,
    ErrorReason.OFFSET_CONSTRAINT: WhyReason.OFFSETS_CONTRADICT,
    ErrorReason.ENCRYPTION_KEY_UNAVAILABLE: WhyReason.ENCRYPTION_KEY_UNAVAILABLE,
}


def reason_of_error(error_reason: str, otherwise: WhyReason) -> WhyReason:
    """The answer that an error's reason stands for."""
    return {each.value: reason for each, reason in _REASONS.items()}.get(error_reason, otherwise)


def next_run(task: TaskState) -> str:
    """When a task runs next, for people."""
    if task.running:
        return "running"
    return f"due in {task.next_run_in_ms} ms" if task.next_run_in_ms > 0 else "due now"


def paused_text(pauses: tuple[TaskPause, ...]) -> str:
    """Who paused what, since when and why, for people."""
    return "copies and expirations are paused: " + "; ".join(map(_said_of_pause, pauses))


def _said_of_pause(pause: TaskPause) -> str:
    since = datetime.fromtimestamp(pause.since_ms / 1000, UTC).isoformat(timespec="seconds")
    what = "the whole topic" if isinstance(pause.target, str) else "this partition"
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    return f"{what} since {since}{by}{f' ({pause.reason})' if pause.reason else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Why something could not be found out."""

    reason: WhyReason
    text: str
    error: AquiferError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyFacts:
    """State of a partition at one moment.

    Attributes:
        config: None when no broker announced the partition.
        log: the leader's.
        listing: what metadata lists, as far as it matters.
        plan: what retention would delete now; None when metadata or log are not known.
        tasks: of the partition, by kind.
        failing: deletions that fail, by segment.
    """

    now_ms: int
    config: TopicConfig | None
    work: PartitionWork | None
    log: LogDescription | Unknown
    listing: Listing | Unknown
    plan: RetentionPlan | None
    tasks: Mapping[TaskType, TaskState]
    pauses: tuple[TaskPause, ...]
    failing: Mapping[KafkaUuid, FailedDeletion]
    retention: EffectiveRetention | None
    copy_abandoned_after_ms: int

    def chosen(self) -> list[RemoteLogSegmentMetadata]:
        """What is asked about; nothing when metadata could not be asked."""
        return [] if isinstance(self.listing, Unknown) else self.listing.chosen

    def highest_remote_offset(self) -> int:
        """Of what is known here and at the broker; -1: nothing."""
        heard = -1 if isinstance(self.log, Unknown) else self.log.highest_remote_offset
        copied = self.work.copied_offset if self.work is not None else None
        return heard if copied is None else max(heard, copied)
