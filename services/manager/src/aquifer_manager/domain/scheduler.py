"""All tasks of a manager: one lane per kind, so that a hanging copy never holds up an expiration (SR-18)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import structlog
from aquifer_core.errors import PreconditionError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_manager.domain.task_lane import LaneSettings, TaskGate, TaskLane, TaskRunner
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskState, TaskType

__all__ = ["Scheduler"]

logger = structlog.get_logger(__name__)

_RESTART_PAUSE_S: Final = 1.0
_PAUSABLE: Final = frozenset({TaskType.COPY, TaskType.EXPIRATION})


class Scheduler:
    """Lanes by kind of task. While the context is open tasks run; leaving it lets runs under way end within the grace."""

    def __init__(
        self,
        runners: Mapping[TaskType, TaskRunner],
        settings: Mapping[TaskType, LaneSettings],
        *,
        clock: Clock,
        stop_grace_s: float = 10.0,
        lent: Mapping[TaskType, Callable[[], int]] | None = None,
        on_asked: Callable[[TopicIdPartition], None] = lambda _: None,
        gate: TaskGate | None = None,
    ) -> None:
        """Prepares the lanes.

        Args:
            runners: what runs a task of each kind.
            settings: of each kind's lane.
            clock: measures and waits.
            stop_grace_s: runs still under way this long after the end began are cancelled.
            lent: by kind, how many slots are not used, or used besides (see `TaskLane`).
            on_asked: told of partitions whose tasks somebody wants to run because something changed.
            gate: keeps copies and expirations of what is paused.
        """
        self._on_asked = on_asked
        lent = lent or {}
        self._clock = clock
        self._stop_grace_s = stop_grace_s
        self._lanes = {
            kind: TaskLane(
                kind.name.lower(),
                runner,
                settings[kind],
                clock=clock,
                gate=gate if kind in _PAUSABLE else None,
                lent=lent.get(kind, lambda: 0),
            )
            for kind, runner in runners.items()
        }
        self._runs: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._runs = [
            asyncio.create_task(self._keep_running(lane), name=f"lane {lane.name}")
            for lane in self._lanes.values()
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for lane in self._lanes.values():
            lane.stop()
        try:
            await asyncio.wait(self._runs, timeout=self._stop_grace_s)
        finally:
            for run in self._runs:
                run.cancel()
            await asyncio.wait(self._runs)

    def set_tasks(self, tip: TopicIdPartition, keys: set[TaskKey]) -> None:
        """Makes a partition's tasks these: new ones are due at once, others end. Partition deletions are left alone."""
        self._on_asked(tip)
        for kind, lane in self._lanes.items():
            if kind is TaskType.PARTITION_DELETION:
                continue
            wanted = {key for key in keys if key.type is kind}
            for key in lane.keys_of(tip) - wanted:
                lane.discard(key)
            for key in wanted:
                lane.add(key)

    def add(self, key: TaskKey) -> None:
        """Adds one task, due at once; a task that is there stays."""
        self._lanes[key.type].add(key)

    def due_now(self, keys: Iterable[TaskKey]) -> None:
        """Makes tasks due; unknown ones are ignored."""
        for key in keys:
            self._on_asked(key.topic_id_partition)
            self._lanes[key.type].due_now(key)

    async def run_now(self, key: TaskKey) -> TaskOutcome:
        """Runs a task now, paused or not, and answers its result.

        Raises:
            RemoteResourceNotFoundError: the partition has no such task here.
            Exception: what the run failed with.
        """
        lane = self._lanes.get(key.type)
        if lane is None:
            raise PreconditionError(f"{key.type.name} is not scheduled")
        self._on_asked(key.topic_id_partition)
        return await lane.run_now(key)

    def due_within(self, horizon_s: float, most: int) -> list[TaskKey]:
        """Of each kind the first tasks that are due, or will be within so many seconds, at most so many."""
        return [key for lane in self._lanes.values() for key in lane.due_within(horizon_s, most)]

    def has_room(self, kind: TaskType) -> bool:
        """Whether a slot of a kind is free that no task waits for."""
        return self._lanes[kind].has_room()

    def wake(self, kind: TaskType) -> None:
        """Looks again whether a run of a kind may begin."""
        self._lanes[kind].wake()

    def states(self, keys: Iterable[TaskKey]) -> list[TaskState]:
        """States of these tasks, as far as they exist."""
        found = (self._lanes[key.type].state(key) for key in keys if key.type in self._lanes)
        return [state for state in found if state is not None]

    def all_states(self) -> list[TaskState]:
        """States of all tasks."""
        return [state for lane in self._lanes.values() for state in lane.states()]

    def resumed(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Partitions are not paused any more: what ran out meanwhile is due at once."""
        self.due_now(TaskKey(tip, kind) for tip in partitions for kind in _PAUSABLE)

    async def _keep_running(self, lane: TaskLane) -> None:
        while True:
            try:
                await lane.run()
            except Exception as error:
                logger.error("lane_failed", lane=lane.name, exc_info=error)
                await self._clock.sleep(_RESTART_PAUSE_S)
            else:
                return
