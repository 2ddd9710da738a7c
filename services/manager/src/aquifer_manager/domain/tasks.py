"""Names and results of tasks."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = [
    "ActionKind",
    "Deferral",
    "Remedy",
    "TaskAction",
    "TaskKey",
    "TaskOutcome",
    "TaskState",
    "TaskType",
]


class TaskType(IntEnum):
    """Tasks of a partition; values are those of `aquifer.manager.v1.TaskType`."""

    COPY = 1
    EXPIRATION = 2
    FOLLOWER = 3
    PARTITION_DELETION = 4
    SCRUB = 5


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """Names a task. Only follower tasks belong to one broker; for the others `broker_id` is -1."""

    topic_id_partition: TopicIdPartition
    type: TaskType
    broker_id: int = -1


class Remedy(StrEnum):
    """What healing does, or would do, about a finding of a scrub."""

    NONE = ""
    REMOVE = "remove"
    COPY_AGAIN = "copy_again"


class ActionKind(StrEnum):
    """What a run did with a segment, or would do."""

    COPIED = "copied"
    DELETED = "deleted"
    MISSING = "missing"
    EXTRA = "extra"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAction:
    """Something a run did, or a scrub found; `reason` is a stable code.

    Attributes:
        remedy: what heals a finding; none when nothing can be done by itself.
        healed: it was done.
        detail: for people, why there is no remedy or why it failed.
    """

    segment: RemoteLogSegmentMetadata
    action: ActionKind
    reason: str
    remedy: Remedy = Remedy.NONE
    healed: bool = False
    detail: str = ""


class Deferral(StrEnum):
    """What a run would have had to wait for."""

    BROKER_PLACES = "broker places"
    COPY_QUOTA = "copy quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """Result of a successful run.

    Attributes:
        more_work: the run stopped early; a task is due again at once, a scrub is repeated by whoever wants to know the rest.
        finished: the task has nothing left to do ever.
        deferred: the run ended because it would have had to wait. One that did nothing counts neither as success nor as failure.
        retry_in_s: when the wait is over; None: unknown.
    """

    actions: tuple[TaskAction, ...] = ()
    more_work: bool = False
    finished: bool = False
    deferred: Deferral | None = None
    retry_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """What is known about a task.

    Attributes:
        next_run_in_ms: 0: due; -1: not scheduled (running or paused).
        since_success_ms: -1: never succeeded.
        without_success_ms: since the last success, or since the task was added.
        last_error_reason: empty when the last run succeeded.
        deferred: the last run ended because it would have had to wait.
    """

    key: TaskKey
    running: bool
    next_run_in_ms: int
    since_success_ms: int
    without_success_ms: int
    consecutive_failures: int
    last_error_reason: str
    last_error: str
    runs: int
    deferred: Deferral | None = None
