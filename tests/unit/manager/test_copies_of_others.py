"""A copy that somebody else finishes while it is being taken for abandoned is data, and stays (SR-16, SR-22).

A manager meets copies that are not its own: of a manager that its broker left, or of a run that goes on while its broker registers
anew. It cannot know whether they will be finished.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aquifer_core.errors import InvalidStateTransitionError
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_manager.domain.tasks import TaskKey, TaskType
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld

_COPY = TaskKey(TIP, TaskType.COPY)


class HeldUpload:
    """The first upload waits; others go through."""

    def __init__(self, upload: Callable[[RemoteLogSegmentMetadata], Awaitable[CopyResult]]) -> None:
        self._upload = upload
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, metadata: RemoteLogSegmentMetadata) -> CopyResult:
        if not self.begun.is_set():
            self.begun.set()
            await self.go_on.wait()
        return await self._upload(metadata)


def _drop_what_is_remote(world: TaskWorld) -> None:
    """Local retention, at once: what the broker believes to be remote goes."""
    log = world.broker.logs[TIP]
    log.segments = [each for each in log.segments if each.end_offset > log.highest_remote_offset]
    log.local_log_start_offset = max(log.local_log_start_offset, log.highest_remote_offset + 1)


async def test_a_copy_that_ends_after_its_broker_registered_anew_is_kept(world: TaskWorld) -> None:
    """The run goes on for the old registration, and the new one finds its copy begun."""
    log = world.leading()
    world.roll(log, 2)
    world.broker.upload = held = HeldUpload(world.upload)
    running = asyncio.create_task(world.copy())
    await held.begun.wait()
    world.registry.register(1, "another", "leader")
    world.announce(0)
    await world.expire()
    held.go_on.set()
    await running
    _drop_what_is_remote(world)
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199)]
    assert await world.nothing_dangles()


async def test_a_copy_that_another_manager_finishes_before_it_is_taken_back_is_kept(
    world: TaskWorld,
) -> None:
    log = world.leading()
    world.roll(log, 2)
    world.broker.upload = held = HeldUpload(world.upload)
    first = world.copy_task
    running = asyncio.create_task(first.run(_COPY))
    await held.begun.wait()
    world.restart()
    world.announce(0)
    await world.expire()
    held.go_on.set()
    await running
    _drop_what_is_remote(world)
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199)]
    assert await world.nothing_dangles()


async def test_an_old_copy_that_is_finished_after_retention_was_planned_is_kept(
    world: TaskWorld,
) -> None:
    """Metadata was away for longer than an upload may take, and both managers come back to it at the same time."""
    log = world.leading()
    world.roll(log, 2)
    first = world.copy_task
    world.restart()
    world.announce(0)
    await world.expire()
    world.broker.upload = held = HeldUpload(world.upload)
    running = asyncio.create_task(first.run(_COPY))
    await held.begun.wait()
    await world.clock.sleep(ABANDONED_AFTER_MS / 1000 + 1)
    world.faults.around = _and_then(  # type: ignore[method-assign]
        world.faults.around, "list_retention_candidates", held.go_on.set, running
    )
    with pytest.raises(InvalidStateTransitionError):
        await world.expire()
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199)]
    assert await world.nothing_dangles()


def _and_then(
    around: Callable[..., Awaitable[Any]],
    method: str,
    let_go: Callable[[], None],
    running: Awaitable[object],
) -> Callable[..., Awaitable[Any]]:
    async def slowly(called: str, *args: Any, **kwargs: Any) -> Any:
        answer = await around(called, *args, **kwargs)
        if called == method:
            let_go()
            await running
        return answer

    return slowly


async def test_what_another_manager_copied_meanwhile_is_caught_up_with(world: TaskWorld) -> None:
    """Otherwise the gap that local retention leaves would defer every copy of this leader epoch (SR-20)."""
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    first = world.copy_task
    world.restart()
    world.announce(0)
    await world.expire()
    world.roll(log, 2)
    await first.run(_COPY)
    _drop_what_is_remote(world)
    world.roll(log, 1)
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299), (300, 399)]
    assert world.registry.require(TIP).work.constraint_violations == 0
