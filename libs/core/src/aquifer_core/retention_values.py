"""What retention decides by, and what it decides."""

from dataclasses import dataclass
from enum import StrEnum

from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = ["RetentionCandidate", "RetentionPlan", "RetentionPolicy", "RetentionReason"]


class RetentionReason(StrEnum):
    """Why a remote segment is to be deleted."""

    RETENTION_TIME = "RETENTION_TIME"
    RETENTION_SIZE = "RETENTION_SIZE"
    LOG_START_OFFSET_BREACH = "LOG_START_OFFSET_BREACH"
    NOT_IN_LINEAGE = "NOT_IN_LINEAGE"
    DELETE_UNFINISHED = "DELETE_UNFINISHED"
    COPY_ABANDONED = "COPY_ABANDONED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What decides the expiration of a partition's remote segments.

    Attributes:
        retention_ms: age in ms at which a segment expires; negative: never.
        retention_bytes: size above which the oldest expire; negative: never.
        log_start_offset: segments wholly below it are deleted.
        log_end_offset: of the leader; a segment reaching it or past it is not in the lineage.
        local_only_bytes: bytes of the local log that are not remote; they count towards the size.
        in_progress: copies under way now; nothing at or after one of them is touched.
        copy_abandoned_after_ms: a COPY_SEGMENT_STARTED entry older than this, not in progress, is garbage.
    """

    retention_ms: int
    retention_bytes: int
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int = 0
    in_progress: frozenset[KafkaUuid] = frozenset()
    copy_abandoned_after_ms: int = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionCandidate:
    """A segment to delete, and why."""

    metadata: RemoteLogSegmentMetadata
    reason: RetentionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """Result of a retention decision.

    Attributes:
        candidates: in the order of deletion.
        new_log_start_offset: to be set before anything is deleted; None when it does not move.
        remote_bytes: bytes of finished segments in the lineage, each offset counted once.
    """

    candidates: tuple[RetentionCandidate, ...]
    new_log_start_offset: int | None
    remote_bytes: int
