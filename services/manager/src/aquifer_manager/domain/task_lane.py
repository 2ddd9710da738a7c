"""Runs the tasks of one kind: a priority queue by due time, a bounded number at once (SR-18)."""

import asyncio
import contextvars
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.task_entry import TaskEntry
from aquifer_manager.domain.task_errors import (
    explained,
    foreign_error,
    is_really_cancelled,
    no_such_task,
)
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskState

__all__ = ["LaneSettings", "TaskGate", "TaskLane", "TaskRunner"]

logger = structlog.get_logger(__name__)

TaskRunner = Callable[[TaskKey], Awaitable[TaskOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """How a lane runs its tasks.

    Attributes:
        size: runs at once.
        interval_s: from the end of a successful run to the next one.
        backoff: from the end of a failed run to the next one.
        run_timeout_s: a run that takes longer is cancelled and counts as failed.
    """

    size: int
    interval_s: float
    backoff: Backoff
    run_timeout_s: float


class TaskGate(Protocol):
    """Keeps tasks of some partitions from running unless somebody asks for a run."""

    def holds(self, tip: TopicIdPartition) -> bool:
        """Whether it keeps a partition's tasks, as far as is known."""
        ...

    async def settle(self) -> None:
        """Finds out what it has to know before a run; raises when it cannot."""
        ...


class TaskLane:
    """A set of tasks that run again and again; never two runs of one task at a time.

    A failed task is always scheduled again, whatever it raised. A task that was removed while it ran is dropped when that run ends.
    The oldest due task goes first, so none starves. Runs begin in an empty context: each is the root of its own trace.
    """

    def __init__(
        self,
        name: str,
        runner: TaskRunner,
        settings: LaneSettings,
        *,
        clock: Clock,
        gate: TaskGate | None = None,
        lent: Callable[[], int] = lambda: 0,
    ) -> None:
        """Prepares a lane; `run` does the work.

        Args:
            name: of the kind of task.
            runner: runs one task.
            settings: size, interval, back-off, deadline.
            clock: measures and waits.
            gate: keeps tasks that nobody asks for; None: no task is kept.
            lent: runs under way that only wait, and do not count, less slots used besides; `wake` says that it changed.
        """
        self.name = name
        self._runner = runner
        self._settings = settings
        self._clock = clock
        self._gate = gate
        self._entries: dict[TaskKey, TaskEntry] = {}
        self._of_partition: dict[TopicIdPartition, set[TaskKey]] = {}
        self._heap: list[tuple[float, int, TaskEntry]] = []
        self._tickets = count()
        self._lent = lent
        self._running = 0
        self._wake = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: TaskKey) -> bool:
        entry = self._entries.get(key)
        return entry is not None and not entry.removed

    def keys_of(self, tip: TopicIdPartition) -> set[TaskKey]:
        """The tasks of a partition."""
        return {key for key in self._of_partition.get(tip, ()) if key in self}

    def add(self, key: TaskKey) -> None:
        """Adds a task, due at once; a task that is there stays as it is."""
        entry = self._entries.get(key)
        if entry is not None and entry.removed:
            entry.removed = False
            entry.due_again = True
        elif entry is None:
            entry = self._entries[key] = TaskEntry(key=key, added_s=self._clock.monotonic_s())
            self._of_partition.setdefault(key.topic_id_partition, set()).add(key)
            self._schedule(entry, 0.0)

    def discard(self, key: TaskKey) -> None:
        """Ends a task; a run under way completes."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.removed = True
        if not entry.running:
            self._drop(entry)

    def due_now(self, key: TaskKey) -> None:
        """Makes a task due; during a run, right after it. Unknown tasks are ignored."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.running:
            entry.due_again = True
        elif entry.due_s > self._clock.monotonic_s() or entry.ticket < 0:
            self._schedule(entry, 0.0)

    async def run_now(self, key: TaskKey) -> TaskOutcome:
        """Runs a task as soon as a slot is free, paused or not, and answers the result of a run begun after this call.

        Raises:
            RemoteResourceNotFoundError: no such task, or it was removed before it ran.
            Exception: what the run failed with.
        """
        entry = self._entries.get(key)
        if entry is None or entry.removed:
            raise no_such_task(key)
        waiter: asyncio.Future[TaskOutcome] = asyncio.get_running_loop().create_future()
        entry.waiters.append(waiter)
        self.due_now(key)
        return await waiter

    def state(self, key: TaskKey) -> TaskState | None:
        """What is known about a task."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        return entry.state(self._clock.monotonic_s())

    def states(self) -> list[TaskState]:
        """All tasks."""
        return [state for key in list(self._entries) if (state := self.state(key)) is not None]

    def due_within(self, horizon_s: float, most: int) -> list[TaskKey]:
        """The first tasks that are due, or will be within so many seconds, at most so many."""
        until_s = self._clock.monotonic_s() + horizon_s
        due = (
            (due_s, ticket, entry)
            for due_s, ticket, entry in self._heap
            if due_s <= until_s and entry.ticket == ticket
        )
        return [entry.key for _, _, entry in heapq.nsmallest(most, due)]

    def has_room(self) -> bool:
        """Whether a slot is free that no task waits for."""
        while self._heap and self._heap[0][2].ticket != self._heap[0][1]:
            heapq.heappop(self._heap)
        is_due = bool(self._heap) and self._heap[0][0] <= self._clock.monotonic_s()
        return self._is_slot_free() and not is_due

    def wake(self) -> None:
        """Looks again whether a run may begin."""
        self._wake.set()

    def stop(self) -> None:
        """Begins no further runs; `run` returns when the runs under way have ended."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Runs tasks until `stop`, whatever they raise; cancelling it cancels the runs under way."""
        self._running = 0
        async with asyncio.TaskGroup() as runs:
            while not self._stopping:
                entry = await self._next_due()
                if entry is None:
                    break
                entry.running = True
                self._running += 1
                runs.create_task(
                    self._execute(entry),
                    name=f"{self.name} {entry.key.topic_id_partition}",
                    context=contextvars.Context(),
                )

    async def _next_due(self) -> TaskEntry | None:
        while not self._stopping:
            self._wake.clear()
            if not self._is_slot_free():
                await self._wake.wait()
                continue
            now_s = self._clock.monotonic_s()
            while self._heap:
                due_s, ticket, entry = self._heap[0]
                if entry.ticket == ticket and due_s > now_s:
                    break
                heapq.heappop(self._heap)
                if entry.ticket != ticket:
                    continue
                entry.ticket = -1
                if entry.is_asked_for or not self._is_kept(entry):
                    return entry
            await self._sleep(self._heap[0][0] - now_s if self._heap else None)
        return None

    def _is_kept(self, entry: TaskEntry) -> bool:
        return self._gate is not None and self._gate.holds(entry.key.topic_id_partition)

    def _is_slot_free(self) -> bool:
        return self._running - self._lent() < self._settings.size

    async def _sleep(self, delay_s: float | None) -> None:
        """Waits for the next due time or until something changes."""
        if delay_s is None:
            await self._wake.wait()
            return
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._clock.sleep(delay_s)),
                group.create_task(_wait_for(self._wake)),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _execute(self, entry: TaskEntry) -> None:
        try:
            await self._run_once(entry)
        finally:
            self._running -= 1
            self._wake.set()

    async def _run_once(self, entry: TaskEntry) -> None:
        waiters = entry.waiting_for_turn + entry.waiters
        entry.waiters, entry.waiting_for_turn = [], []
        entry.due_again = False
        entry.runs += 1
        try:
            async with asyncio.timeout(self._settings.run_timeout_s) as deadline:
                if self._gate is not None and not waiters:
                    await self._gate.settle()
                    if self._is_kept(entry):
                        entry.runs -= 1
                        self._ended(entry, 0.0)
                        return
                outcome = await self._runner(entry.key)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if is_really_cancelled(error):
                self._ended(entry, 0.0)
                raise
            limit_s = self._settings.run_timeout_s if deadline.expired() else None
            self._failed(entry, explained(self.name, entry.key, error, limit_s), waiters)
        else:
            self._succeeded(entry, outcome, waiters)

    def _succeeded(
        self, entry: TaskEntry, outcome: TaskOutcome, waiters: list[asyncio.Future[TaskOutcome]]
    ) -> None:
        entry.deferred = outcome.deferred
        if outcome.deferred and not outcome.actions:
            entry.runs -= 1
            entry.waiting_for_turn += waiters
            self._ended(entry, self._pause_s(outcome))
            return
        if entry.consecutive_failures:
            logger.info("task_recovered", lane=self.name, failures=entry.consecutive_failures)
        entry.succeeded(outcome, self._clock.monotonic_s())
        self._ended(entry, 0.0 if outcome.more_work else self._pause_s(outcome))
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(outcome)

    def _pause_s(self, outcome: TaskOutcome) -> float:
        return self._settings.interval_s if outcome.retry_in_s is None else outcome.retry_in_s

    def _failed(
        self, entry: TaskEntry, error: BaseException, waiters: list[asyncio.Future[TaskOutcome]]
    ) -> None:
        entry.failed(error)
        delay_s = self._settings.backoff.delay_s(entry.consecutive_failures)
        logger.warning(
            "task_failed",
            lane=self.name,
            topic=entry.key.topic_id_partition.topic,
            partition=entry.key.topic_id_partition.partition,
            reason=entry.last_error_reason,
            error=entry.last_error,
            failures=entry.consecutive_failures,
            retry_in_s=round(delay_s, 3),
            exc_info=None if isinstance(error, AquiferError) else error,
        )
        self._ended(entry, delay_s)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(
                    error if isinstance(error, Exception) else foreign_error(error)
                )

    def _ended(self, entry: TaskEntry, delay_s: float) -> None:
        entry.running = False
        if entry.removed:
            self._drop(entry)
        else:
            self._schedule(entry, 0.0 if entry.due_again or entry.waiters else delay_s)

    def _schedule(self, entry: TaskEntry, delay_s: float) -> None:
        entry.due_s = self._clock.monotonic_s() + delay_s
        entry.ticket = next(self._tickets)
        heapq.heappush(self._heap, (entry.due_s, entry.ticket, entry))
        self._wake.set()

    def _drop(self, entry: TaskEntry) -> None:
        entry.ticket = -1
        if self._entries.pop(entry.key, None) is not None:
            tip = entry.key.topic_id_partition
            self._of_partition[tip].discard(entry.key)
            if not self._of_partition[tip]:
                del self._of_partition[tip]
        for waiter in entry.waiting_for_turn + entry.waiters:
            if not waiter.done():
                waiter.set_exception(no_such_task(entry.key))


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
