"""Two managers that work on one partition by accident do no harm: metadata's fences and one id per copy see to it (SR-16, SR-22).

Both believe that they work for the same leader in the same epoch, which nothing but their own cleaning up can tell apart.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aquifer_core.errors import AquiferError
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld
from fixtures.manager_world import START_MS, settle

Run = Callable[[], Coroutine[Any, Any, TaskOutcome]]


class TwoManagers:
    """Two managers over the same roles and broker; what they call takes its time, by chance."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.world = world = TaskWorld()
        self._random = random.Random(seed)
        self.log = world.leading(config=config)
        self._tasks = [(world.copy_task, world.expiration_task)]
        world.restart()
        world.announce(0, config)
        self._tasks.append((world.copy_task, world.expiration_task))
        for faults in (world.faults, world.broker.faults):
            faults.around = self._slowed(faults.around)  # type: ignore[method-assign]

    def runs(self) -> list[Run]:
        """A copy and an expiration of both managers."""
        copy, expiration = TaskKey(TIP, TaskType.COPY), TaskKey(TIP, TaskType.EXPIRATION)
        return [
            run
            for copies, expirations in self._tasks
            for run in (lambda c=copies: c.run(copy), lambda e=expirations: e.run(expiration))
        ]

    async def work_at_once(self, rounds: int) -> None:
        """Every task of both managers, all at the same time, again and again, while segments are rolled."""
        for _ in range(rounds):
            self.world.roll(self.log, self._random.randrange(3), timestamp_ms=START_MS)
            runs = [self._after_a_while(run) for run in self.runs()]
            results = await asyncio.gather(*runs, return_exceptions=True)
            unexpected = [
                each
                for each in results
                if isinstance(each, BaseException) and not isinstance(each, AquiferError)
            ]
            assert not unexpected

    async def come_to_rest(self) -> None:
        """One after the other until nothing is left to do; what nobody finished is old by then."""
        for _ in range(4):
            await self.world.clock.sleep(ABANDONED_AFTER_MS / 1000)
            for run in self.runs():
                try:
                    await run()
                except AquiferError:
                    continue

    async def holes(self) -> list[tuple[int, int]]:
        """Offsets between the log start and the last rolled one that no finished segment holds."""
        left, holes = self.log.log_start_offset, []
        for start, end in sorted(await self.world.finished()):
            if start > left:
                holes.append((left, start - 1))
            left = max(left, end + 1)
        if left < self.log.log_end_offset:
            holes.append((left, self.log.log_end_offset - 1))
        return holes

    async def _after_a_while(self, run: Run) -> TaskOutcome:
        await settle(self._random.randrange(40))
        return await run()

    def _slowed(self, around: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slowly(*args: Any, **kwargs: Any) -> Any:
            await settle(self._random.randrange(12))
            answer = await around(*args, **kwargs)
            await settle(self._random.randrange(12))
            return answer

        return slowly


@pytest.mark.parametrize("seed", range(25))
async def test_managers_that_copy_and_expire_the_same_partition_lose_nothing(seed: int) -> None:
    managers = TwoManagers(seed, TopicConfig())
    await managers.work_at_once(rounds=6)
    await managers.come_to_rest()
    assert await managers.holes() == []
    assert await managers.world.nothing_dangles()
    assert managers.log.log_start_offset == 0


@pytest.mark.parametrize("seed", range(25))
async def test_managers_that_delete_the_same_segments_delete_no_more_than_retention_says(
    seed: int,
) -> None:
    world = TaskWorld()
    world.roll(log := world.leading(), 1)
    kept_bytes = 3 * log.segments[0].size_bytes
    managers = TwoManagers(seed, TopicConfig(retention_bytes=kept_bytes))
    await managers.work_at_once(rounds=8)
    await managers.come_to_rest()
    assert await managers.holes() == []
    assert await managers.world.nothing_dangles()
    rolled_bytes = sum(segment.size_bytes for segment in managers.log.segments)
    left = dict(await managers.world.finished())
    assert len(left) * kept_bytes // 3 >= min(kept_bytes, rolled_bytes)


async def test_a_copy_of_the_other_manager_is_taken_back_and_its_own_commit_refused() -> None:
    """Forced: the second manager begins while the first one's upload is half done."""
    managers = TwoManagers(0, TopicConfig())
    world = managers.world
    world.roll(managers.log, 1)
    begun, go_on = asyncio.Event(), asyncio.Event()
    upload = world.broker.upload
    assert upload is not None
    ids: list[object] = []

    async def first_one_waits(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        ids.append(metadata.segment_id)
        if len(ids) == 1:
            begun.set()
            await go_on.wait()
        return await upload(metadata)

    world.broker.upload = first_one_waits
    first, _, second, _ = managers.runs()
    slow = asyncio.create_task(first())
    await begun.wait()
    assert (await second()).actions
    go_on.set()
    with pytest.raises(AquiferError):
        await slow
    assert world.storage.segment_ids == frozenset(ids[1:])
    assert await managers.holes() == []
    await managers.come_to_rest()
    assert await world.nothing_dangles()
    assert await managers.holes() == []
