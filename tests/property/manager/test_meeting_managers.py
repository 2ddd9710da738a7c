"""Managers that work on one partition by accident, brokers that register anew and drop what they believe to be remote (SR-16, SR-22).

Everything happens at the same time, by chance, and calls fail before or after they are done. In the end every record is remote or
still local, whatever was seen as abandoned by whom.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from aquifer_core.errors import AquiferError, RemoteStorageUnavailableError
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld
from fixtures.manager_world import START_MS, settle

_COPY, _EXPIRATION = TaskKey(TIP, TaskType.COPY), TaskKey(TIP, TaskType.EXPIRATION)
_STEPS: Final = 50
_FAILING: Final = 0.03

Run = Callable[[TaskKey], Awaitable[TaskOutcome]]


class Meeting:
    """Two managers and a broker."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.world = world = TaskWorld()
        self.log = world.leading()
        self._epoch = 0
        self._registries = [world.registry]
        self._tasks: list[tuple[TaskKey, Run]] = self._tasks_of_world()
        world.restart()
        world.announce(0)
        self._registries.append(world.registry)
        self._tasks += self._tasks_of_world()
        self._running: dict[int, asyncio.Task[TaskOutcome]] = {}
        for faults in (world.faults, world.broker.faults):
            faults.around = self._troubled(faults.around)  # type: ignore[method-assign]

    async def meet(self) -> None:
        """Everything that may happen, a few times each."""
        happenings: list[Callable[[], object]] = [
            *[self._roll] * 6,
            *[self.drop_what_is_remote] * 4,
            *[self._register_anew] * 2,
            self._cancel,
            self._lead_again,
            self._restart_broker,
            *[lambda: None] * 5,
        ]
        for _ in range(_STEPS):
            self._start_runs()
            await settle(self._random.randrange(40))
            self._random.choice(happenings)()
        results = await asyncio.gather(*self._running.values(), return_exceptions=True)
        unexpected = [
            each
            for each in results
            if isinstance(each, BaseException)
            and not isinstance(each, (AquiferError, asyncio.CancelledError))
        ]
        assert not unexpected

    async def come_to_rest(self) -> list[AquiferError]:
        """One run after the other without trouble, until nothing is left to do. What failed in the last round."""
        self._random.random = lambda: 1.0  # type: ignore[method-assign]
        self._roll()
        for registry in self._registries:
            self._announce(registry)
        errors: list[AquiferError] = []
        for _ in range(6):
            errors = []
            await self.world.clock.sleep(ABANDONED_AFTER_MS / 1000)
            for key, run in self._tasks:
                try:
                    await run(key)
                except AquiferError as error:
                    errors.append(error)
            self.drop_what_is_remote()
        return errors

    def drop_what_is_remote(self) -> None:
        """Local retention, as far as the broker was told."""
        log, told = self.log, self.log.highest_remote_offset
        log.segments = [each for each in log.segments if each.end_offset > told]
        log.local_log_start_offset = max(log.local_log_start_offset, told + 1)

    def _tasks_of_world(self) -> list[tuple[TaskKey, Run]]:
        return [
            (_COPY, self.world.copy_task.run),
            (_EXPIRATION, self.world.expiration_task.run),
        ]

    def _start_runs(self) -> None:
        for number, (key, run) in enumerate(self._tasks):
            running = self._running.get(number)
            if (running is None or running.done()) and self._random.random() < 0.5:
                task = asyncio.create_task(self._after_a_while(key, run))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._running[number] = task

    async def _after_a_while(self, key: TaskKey, run: Run) -> TaskOutcome:
        await settle(self._random.randrange(60))
        return await run(key)

    def _roll(self) -> None:
        self.world.roll(self.log, self._random.randrange(1, 3), timestamp_ms=START_MS)

    def _register_anew(self) -> None:
        registry = self._random.choice(self._registries)
        registry.register(1, str(self._random.random()), "leader")
        self._announce(registry)

    def _cancel(self) -> None:
        for task in self._random.sample(list(self._running.values()), min(1, len(self._running))):
            task.cancel()

    def _lead_again(self) -> None:
        self._epoch += 1
        log = self.log
        log.leader_epoch = self._epoch
        before = tuple(each for each in log.epochs if each.start_offset < log.log_end_offset)
        log.epochs = (*before, LeaderEpochEntry(self._epoch, log.log_end_offset))
        for registry in self._registries:
            if self._random.random() < 0.8:
                self._announce(registry)

    def _restart_broker(self) -> None:
        self.log.highest_remote_offset = -1

    def _announce(self, registry: Any) -> None:
        self.world.registry = registry
        self.world.announce(self._epoch, TopicConfig())

    def _troubled(self, around: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(method: str, *args: Any, **kwargs: Any) -> Any:
            await self._trouble("before")
            answer = await around(method, *args, **kwargs)
            await self._trouble("after")
            return answer

        return call

    async def _trouble(self, when: str) -> None:
        await settle(self._random.randrange(10))
        if self._random.random() < _FAILING:
            raise RemoteStorageUnavailableError(f"fault {when} the call")


async def _holes(metadata: RemoteLogMetadataManager, end_offset: int) -> list[tuple[int, int]]:
    """Offsets that no finished segment holds."""
    left, holes = 0, []
    segments = [
        (each.start_offset, each.end_offset)
        async for each in metadata.list_remote_log_segments(TIP)
        if each.state.name == "COPY_SEGMENT_FINISHED"
    ]
    for start, end in sorted([*segments, (end_offset, end_offset)]):
        if start > left:
            holes.append((left, start - 1))
        left = max(left, end + 1)
    return holes


@pytest.mark.parametrize("seed", range(25))
async def test_every_record_stays_remote_or_local_whatever_managers_take_from_each_other(
    seed: int,
) -> None:
    meeting = Meeting(seed)
    await meeting.meet()
    errors = await meeting.come_to_rest()
    world, log = meeting.world, meeting.log
    assert await _holes(world.metadata, log.log_end_offset) == []
    assert errors == []
    assert await world.nothing_dangles()
    assert log.log_start_offset == 0
