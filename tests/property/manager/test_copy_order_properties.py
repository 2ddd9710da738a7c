"""In whatever order uploads of one partition end or fail, what is committed has no hole and nothing is lost (SR-16, SR-20)."""

import asyncio
import contextlib
import random
from typing import Any

from aquifer_core.errors import (
    AquiferError,
    CorruptRecordError,
    DeadlineExceededError,
    InvalidStateTransitionError,
    RemoteStorageUnavailableError,
)
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import settle
from hypothesis import given, settings
from hypothesis import strategies as st

SEGMENTS = 9
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
LOST = (
    RemoteStorageUnavailableError("store"),
    DeadlineExceededError("lost"),
    RuntimeError("a bug"),
)
"""What may come although the call went through; any other error says that it did not."""
ERRORS = (*LOST, CorruptRecordError("bad"))
REFUSALS = (*LOST, InvalidStateTransitionError("reaped"))


class Disorder:
    """A world whose uploads and commits take their time and fail by chance; every commit is looked at."""

    def __init__(self, seed: int, *, at_once: int, failing: float) -> None:
        self._random = random.Random(seed)
        self._failing = failing
        self.world = world = TaskWorld()
        world.segments_at_once = at_once
        world.restart()
        world.roll(world.leading(), SEGMENTS)
        self._store = world.upload
        world.broker.upload = self._upload
        self._update = world.faults.around
        world.faults.around = self._around  # type: ignore[method-assign]
        tell = world.broker.faults.around

        async def told(method: str, *args: Any, **kwargs: Any) -> Any:
            answer = await tell(method, *args, **kwargs)
            await self.check()
            return answer

        world.broker.faults.around = told  # type: ignore[method-assign]

    async def _upload(self, metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await settle(self._random.randrange(60))
        before, after = self._chance(ERRORS), self._chance(ERRORS)
        if before is not None:
            raise before
        result = await self._store(metadata)
        await settle(self._random.randrange(20))
        if after is not None:
            raise after
        return result

    async def _around(self, method: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        await settle(self._random.randrange(6))
        commits = method == "update_remote_log_segment_metadata" and args[0].state is FINISHED
        if not commits:
            return await self._update(method, call, *args, **kwargs)
        before, after = self._chance(REFUSALS), self._chance(LOST)
        if before is not None:
            raise before
        answer = await self._update(method, call, *args, **kwargs)
        await self.check()
        if after is not None:
            raise after
        return answer

    def _chance(self, errors: tuple[Exception, ...]) -> Exception | None:
        return self._random.choice(errors) if self._random.random() < self._failing else None

    async def check(self) -> None:
        """What is finished begins at the log start and has no hole; the broker was told of no more; the rest has metadata."""
        told = self.world.broker.logs[TIP].highest_remote_offset
        finished = sorted(await self.world.finished())
        assert finished == [(start, start + 99) for start in range(0, 100 * len(finished), 100)]
        assert told < 100 * len(finished)
        known = {
            each.segment_id async for each in self.world.metadata.list_remote_log_segments(TIP)
        }
        assert known >= set(self.world.storage.segment_ids)

    async def run(self, step: str) -> None:
        with contextlib.suppress(AquiferError, RuntimeError, TimeoutError):
            match step:
                case "copy":
                    await self.world.copy()
                case "copy, cancelled":
                    run = asyncio.create_task(self.world.copy())
                    await settle(self._random.randrange(200))
                    run.cancel()
                    await asyncio.wait([run])
                case "restart":
                    self.world.restart()
                    self.world.announce(0)
                case "expire":
                    await self.world.expire()
        await self.check()

    async def calm_down(self) -> None:
        self._failing = 0.0
        for _ in range(4):
            await self.run("copy")
            await self.run("expire")
            await self.world.clock.sleep(4000)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    at_once=st.integers(1, 5),
    failing=st.sampled_from([0.0, 0.05, 0.3]),
    steps=st.lists(
        st.sampled_from(["copy", "copy", "copy, cancelled", "restart", "expire"]), max_size=8
    ),
)
def test_what_is_committed_is_a_prefix_and_nothing_is_lost(
    seed: int, at_once: int, failing: float, steps: list[str]
) -> None:
    async def main() -> None:
        disorder = Disorder(seed, at_once=at_once, failing=failing)
        for step in steps:
            await disorder.run(step)
        await disorder.calm_down()
        world = disorder.world
        assert len(await world.finished()) == SEGMENTS
        assert await world.nothing_dangles()
        assert world.broker.logs[TIP].highest_remote_offset == 100 * SEGMENTS - 1
        work = world.registry.require(TIP).work
        assert (work.in_progress, work.stored, work.uncommitted, work.failed) == (set(), {}, {}, {})

    asyncio.run(main())
