"""A task in its lane: when it is due, and how its runs went."""

import asyncio
from dataclasses import dataclass, field

from aquifer_core.errors import AquiferError, ErrorReason

from aquifer_manager.domain.tasks import Deferral, TaskKey, TaskOutcome, TaskState

__all__ = ["TaskEntry"]


@dataclass(slots=True, kw_only=True, eq=False)
class TaskEntry:
    """Mutable state of one task.

    Attributes:
        ticket: of its place in the queue; -1: not queued.
        removed: dropped when the run under way ends.
        due_again: something asked for another run during the one under way.
        deferred: the last run ended because it would have had to wait.
        waiters: of whoever asked for a run and waits for its result.
        waiting_for_turn: waiters whose run was deferred.
    """

    key: TaskKey
    added_s: float
    ticket: int = -1
    due_s: float = 0.0
    running: bool = False
    removed: bool = False
    due_again: bool = False
    runs: int = 0
    consecutive_failures: int = 0
    last_success_s: float | None = None
    last_error_reason: str = ""
    last_error: str = ""
    deferred: Deferral | None = None
    waiters: list[asyncio.Future[TaskOutcome]] = field(default_factory=list)
    waiting_for_turn: list[asyncio.Future[TaskOutcome]] = field(default_factory=list)

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody waits for a run, also of a paused task."""
        return bool(self.waiters or self.waiting_for_turn)

    def state(self, now_s: float) -> TaskState:
        """What is known about the task."""
        scheduled = self.ticket >= 0
        succeeded_s = self.last_success_s
        since_s = self.added_s if succeeded_s is None else succeeded_s
        return TaskState(
            key=self.key,
            running=self.running,
            next_run_in_ms=max(0, round((self.due_s - now_s) * 1000)) if scheduled else -1,
            since_success_ms=-1 if succeeded_s is None else round((now_s - succeeded_s) * 1000),
            without_success_ms=round((now_s - since_s) * 1000),
            consecutive_failures=self.consecutive_failures,
            last_error_reason=self.last_error_reason,
            last_error=self.last_error,
            runs=self.runs,
            deferred=self.deferred,
        )

    def succeeded(self, outcome: TaskOutcome, now_s: float) -> None:
        """Notes the end of a successful run."""
        self.last_success_s = now_s
        self.consecutive_failures = 0
        self.last_error_reason = self.last_error = ""
        self.removed = self.removed or outcome.finished

    def failed(self, error: BaseException) -> None:
        """Notes the end of a failed run."""
        known = error if isinstance(error, AquiferError) else None
        self.consecutive_failures += 1
        self.last_error_reason = (known.reason if known else ErrorReason.INTERNAL).value
        self.last_error = str(error) if known else repr(error)
