"""Size retention counts every record once, also while the broker does not know yet what is remote (SR-11, K-3.4)."""

import asyncio
from dataclasses import dataclass

from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_manager.domain.ports import LogDescription, LogQuery
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import SimulatedLog


@dataclass
class CountingLog(SimulatedLog):
    """Says as a broker does how many bytes are only local: those of segments behind the highest remote offset it was told."""

    def describe(self, query: LogQuery) -> LogDescription:
        self.local_only_bytes = sum(
            each.size_bytes
            for each in self.segments
            if each.base_offset > self.highest_remote_offset
        )
        return super().describe(query)


def _lead(world: TaskWorld, *, segments: int, kept_segments: int) -> SimulatedLog:
    """A log of so many rolled segments, of which retention keeps some."""
    log = world.broker.add(CountingLog(TIP))
    world.roll(log, segments)
    kept_bytes = kept_segments * log.segments[0].size_bytes
    return world.leading(config=TopicConfig(retention_bytes=kept_bytes))


async def test_a_broker_that_restarts_does_not_make_its_log_look_larger(world: TaskWorld) -> None:
    """It begins without knowing what is remote, so all that is local is only local to it."""
    log = _lead(world, segments=4, kept_segments=5)
    await world.copy()
    log.highest_remote_offset = -1
    world.restart()
    world.announce(0, TopicConfig(retention_bytes=5 * log.segments[0].size_bytes))
    for _ in range(3):
        await world.expire()
        await world.copy()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299), (300, 399)]
    assert log.log_start_offset == 0


async def test_copies_that_are_finished_while_retention_is_planned_count_once(
    world: TaskWorld,
) -> None:
    """The broker is told of copies later than metadata."""
    log = _lead(world, segments=3, kept_segments=4)
    await world.copy()
    world.roll(log, 1)
    uploaded, go_on = asyncio.Event(), asyncio.Event()

    async def held(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        uploaded.set()
        await go_on.wait()
        return await world.upload(metadata)

    world.broker.upload = held
    copying = asyncio.create_task(world.copy())
    await uploaded.wait()
    around = world.faults.around

    async def finished_first(method: str, *args: object, **kwargs: object) -> object:
        if method == "list_retention_candidates":
            go_on.set()
            await copying
        return await around(method, *args, **kwargs)  # type: ignore[arg-type]

    world.faults.around = finished_first  # type: ignore[method-assign]
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299), (300, 399)]
    assert log.log_start_offset == 0


async def test_copies_that_another_manager_finishes_meanwhile_count_once(world: TaskWorld) -> None:
    log = _lead(world, segments=3, kept_segments=4)
    await world.copy()
    others = world.copy_task
    world.restart()
    world.announce(0, TopicConfig(retention_bytes=4 * log.segments[0].size_bytes))
    await world.expire()
    world.roll(log, 2)
    around = world.faults.around

    async def copied_first(method: str, *args: object, **kwargs: object) -> object:
        if method == "list_retention_candidates":
            await others.run(TaskKey(TIP, TaskType.COPY))
        return await around(method, *args, **kwargs)  # type: ignore[arg-type]

    world.faults.around = copied_first  # type: ignore[method-assign]
    await world.expire()
    assert await world.finished() == [(100, 199), (200, 299), (300, 399), (400, 499)]
    assert log.log_start_offset == 100


async def test_what_is_only_local_counts_as_soon_as_it_is_known(world: TaskWorld) -> None:
    log = _lead(world, segments=4, kept_segments=4)
    await world.copy()
    world.roll(log, 2)
    await world.expire()
    assert await world.finished() == [(200, 299), (300, 399)]
    assert log.log_start_offset == 200
