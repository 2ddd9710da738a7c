"""Questions about segments and the reasons that answer them; names are those of `aquifer.manager.v1`."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto

from aquifer_core.ids import KafkaUuid

__all__ = ["Explanation", "WhyQuestion", "WhyReason"]


class WhyQuestion(IntEnum):
    """What is asked; values are those of the contract."""

    STILL_LOCAL = 1
    NOT_DELETED = 2
    UNREADABLE = 3


class WhyReason(StrEnum):
    """A stable answer; the contract says what each means and what to do."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    TIERING_DISABLED = auto()
    COPY_DISABLED = auto()
    ACTIVE_SEGMENT = auto()
    NOT_STABLE = auto()
    BELOW_LOG_START = auto()
    PAUSED = auto()
    COPYING = auto()
    WAITING_FOR_COPY_SLOT = auto()
    WAITING_FOR_NEXT_RUN = auto()
    BEHIND_OLDER_SEGMENTS = auto()
    COPY_FAILING = auto()
    COPY_UNCONFIRMED = auto()
    BROKER_NOT_TOLD = auto()
    LOCAL_RETENTION_NOT_REACHED = auto()
    LOCAL_RETENTION_DUE = auto()
    RETENTION_NOT_REACHED = auto()
    RETENTION_UNLIMITED = auto()
    DELETION_DUE = auto()
    DELETION_PENDING = auto()
    DELETION_FAILING = auto()
    EXPIRATION_FAILING = auto()
    PARTITION_DELETION = auto()
    COPY_DANGLING_YOUNG = auto()
    BEHIND_COPY_IN_PROGRESS = auto()
    BEYOND_LOG_END = auto()
    LEADER_UNKNOWN = auto()
    LEADERSHIP_MOVED = auto()
    LEADER_FENCED = auto()
    BROKER_UNREACHABLE = auto()
    STORE_UNREACHABLE = auto()
    METADATA_UNREACHABLE = auto()
    OFFSETS_CONTRADICT = auto()
    ABOVE_LOG_END = auto()
    READ_LOCALLY = auto()
    READABLE = auto()
    NO_LEADER_EPOCH = auto()
    NOT_IN_LINEAGE = auto()
    COPY_NOT_FINISHED = auto()
    BEING_DELETED = auto()
    NO_SEGMENT = auto()
    OBJECTS_MISSING = auto()
    OBJECTS_CORRUPT = auto()
    ENCRYPTION_KEY_UNAVAILABLE = auto()
    WAITING_FOR_COPY_QUOTA = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An answer about offsets, both inclusive; an end below the start stands for no offsets.

    Attributes:
        segment_id: of the remote segment that it is about.
        for_ms: for how long it has been so; None: unknown.
    """

    question: WhyQuestion
    reason: WhyReason
    text: str
    start_offset: int
    end_offset: int
    segment_id: KafkaUuid | None = None
    for_ms: int | None = None
    last_error_reason: str = ""
    last_error: str = ""
