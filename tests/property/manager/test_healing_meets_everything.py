"""Scrubs that heal while copies, deletions and other scrubs of two managers are under way, objects get lost and records are deleted.

Whatever meets whatever: what is at or above the log start is in a finished segment whose objects are there, or still local; and
nothing is left in the store that metadata does not know (T17, SR-16, SR-25).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from aquifer_core.errors import AquiferError, RemoteStorageUnavailableError
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld
from fixtures.manager_world import START_MS, settle

_KEYS: Final = {kind: TaskKey(TIP, kind) for kind in TaskType}
_STEPS: Final = 60
_FAILING: Final = 0.02
_CONFIG: Final = TopicConfig(retention_bytes=40 * 160)

Run = Callable[[], Awaitable[TaskOutcome]]


class Troubles:
    """Everything takes a while, and some of it fails, before or after it is done."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.over = False

    async def __call__(self, when: str) -> None:
        if self.over:
            return
        await settle(self.chance.randrange(8))
        if self.chance.random() < _FAILING:
            raise RemoteStorageUnavailableError(f"fault {when} the call")

    def around(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def troubled(*args: Any, **kwargs: Any) -> Any:
            await self("before")
            answer = await call(*args, **kwargs)
            await self("after")
            return answer

        return troubled

    def listing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def troubled(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            await self("before")
            async for each in call(*args, **kwargs):
                yield each
            await self("after")

        return troubled


class Store:
    """Two managers of one partition, its broker, and what may happen to them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._troubles = Troubles(self._random)
        self.world = world = TaskWorld()
        self.log = world.leading(config=_CONFIG)
        self._runs: list[Run] = self._runs_of_world()
        self._registries = [world.registry]
        world.restart()
        world.announce(0, _CONFIG)
        self._runs += self._runs_of_world()
        self._registries.append(world.registry)
        self._running: dict[int, asyncio.Task[TaskOutcome]] = {}
        self._strays: list[asyncio.Task[CopyResult]] = []
        self._store = world.storage.copy_log_segment_data
        for faults in (world.faults, world.broker.faults):
            faults.around = self._troubles.around(faults.around)  # type: ignore[method-assign]
        for name in ("describe_segment", "copy_log_segment_data"):
            setattr(world.storage, name, self._troubles.around(getattr(world.storage, name)))
        for role, name in (
            (world.storage, "list_stored_segments"),
            (world.storage, "verify_segment"),
            (world.metadata, "list_remote_log_segments"),
        ):
            setattr(role, name, self._troubles.listing(getattr(role, name)))

    async def happen(self) -> None:
        happenings: list[Callable[[], object]] = [
            *[self._roll] * 6,
            *[self._drop_what_is_remote] * 4,
            *[self._lose_objects] * 2,
            *[self._delete_records] * 1,
            self._stray,
            self._cancel,
            self._lead_again,
            *[lambda: None] * 5,
        ]
        for _ in range(_STEPS):
            self._start_runs()
            await settle(self._random.randrange(40))
            self._random.choice(happenings)()
        await asyncio.gather(*self._strays)
        results = await asyncio.gather(*self._running.values(), return_exceptions=True)
        unexpected = [
            each
            for each in results
            if isinstance(each, BaseException)
            and not isinstance(each, (AquiferError, asyncio.CancelledError))
        ]
        assert not unexpected

    async def come_to_rest(self) -> None:
        self._troubles.over = True
        self._roll()
        for registry in self._registries:
            self._announce(registry)
        for _ in range(5):
            await self.world.clock.sleep(ABANDONED_AFTER_MS / 1000)
            for run in self._runs:
                try:
                    await run()
                except AquiferError as error:
                    self.last_error = error
            self._drop_what_is_remote()

    def sound(self) -> list[RemoteLogSegmentMetadata]:
        """Finished segments whose objects are there."""
        partition = self.world.metadata._of(TIP)
        return [
            each
            for each in partition.listed()
            if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            and each.segment_id in self.world.storage.segment_ids
        ]

    def nowhere(self, *, kept_above: int = -1) -> list[tuple[int, int]]:
        """Offsets at or above the log start that are neither remote nor local; the broker may drop what ends lower."""
        log, left, holes = self.log, self.log.log_start_offset, []
        held = [(each.start_offset, each.end_offset) for each in self.sound()]
        held += [
            (each.base_offset, each.end_offset)
            for each in log.segments
            if each.end_offset > kept_above
        ]
        for start, end in sorted([*held, (log.log_end_offset, log.log_end_offset)]):
            if start > left:
                holes.append((left, start - 1))
            left = max(left, end + 1)
        return holes

    def _runs_of_world(self) -> list[Run]:
        world = self.world
        scrub = ScrubTask(
            world.storage,
            world.metadata,
            world.healing,
            clock=world.clock,
            telemetry=NoTelemetry(),
            grace_ms=0,
        )
        copy, expire = world.copy_task.run, world.expiration_task.run
        return [
            lambda: copy(_KEYS[TaskType.COPY]),
            lambda: expire(_KEYS[TaskType.EXPIRATION]),
            lambda: scrub.run(_KEYS[TaskType.SCRUB], deep=self._random.random() < 0.5, heal=True),
        ]

    def _start_runs(self) -> None:
        for number, run in enumerate(self._runs):
            running = self._running.get(number)
            if (running is None or running.done()) and self._random.random() < 0.5:
                task = asyncio.create_task(self._after_a_while(run))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._running[number] = task

    async def _after_a_while(self, run: Run) -> TaskOutcome:
        await settle(self._random.randrange(60))
        return await run()

    def _roll(self) -> None:
        self.world.roll(self.log, self._random.randrange(1, 3), timestamp_ms=START_MS)

    def _drop_what_is_remote(self) -> None:
        """Local retention, as far as the broker was told, and as far as no object got lost."""
        log, told = self.log, self.log.highest_remote_offset
        sound = {(each.start_offset, each.end_offset) for each in self.sound()}
        while log.segments and log.segments[0].end_offset <= told:
            first = log.segments[0]
            is_deleted = first.end_offset < log.log_start_offset
            if not is_deleted and (first.base_offset, first.end_offset) not in sound:
                break
            del log.segments[0]
            log.local_log_start_offset = max(log.local_log_start_offset, first.end_offset + 1)

    def _lose_objects(self) -> None:
        """The store loses a segment that its broker has, too."""
        local = {(each.base_offset, each.end_offset) for each in self.log.segments}
        candidates = [
            each for each in self.sound() if (each.start_offset, each.end_offset) in local
        ]
        if candidates:
            self.world.storage._segments.pop(self._random.choice(candidates).segment_id)

    def _delete_records(self) -> None:
        log = self.log
        start = self._random.randrange(log.log_start_offset, log.log_start_offset + 150)
        self._raise_log_start(min(start, log.last_stable_offset))

    def _raise_log_start(self, start: int) -> None:
        log = self.log
        log.log_start_offset = max(log.log_start_offset, start)
        log.local_log_start_offset = max(log.local_log_start_offset, log.log_start_offset)
        log.segments = [each for each in log.segments if each.end_offset >= log.log_start_offset]
        epochs = LeaderEpochCache(log.epochs)
        epochs.truncate_from_start(log.log_start_offset)
        log.epochs = epochs.entries

    def _stray(self) -> None:
        """A late write of the store: objects that metadata never heard of."""
        start = self._random.randrange(0, max(1, self.log.log_end_offset))
        segment = Segment(tip=TIP, batches=[batch(start), batch(start + 99)], epochs={0: start})
        self._strays.append(asyncio.create_task(self._store(segment.metadata(), segment.data())))

    def _cancel(self) -> None:
        for task in self._random.sample(list(self._running.values()), min(1, len(self._running))):
            task.cancel()

    def _lead_again(self) -> None:
        log = self.log
        log.leader_epoch += 1
        before = tuple(each for each in log.epochs if each.start_offset < log.log_end_offset)
        log.epochs = (*before, LeaderEpochEntry(log.leader_epoch, log.log_end_offset))
        for registry in self._registries:
            if self._random.random() < 0.8:
                self._announce(registry)

    def _announce(self, registry: Any) -> None:
        self.world.registry = registry
        self.world.announce(self.log.leader_epoch, _CONFIG)


@pytest.mark.parametrize("seed", range(15))
async def test_healing_loses_nothing_and_leaves_nothing_behind(seed: int) -> None:
    store = Store(seed)
    await store.happen()
    assert store.nowhere() == []
    await store.come_to_rest()
    assert store.nowhere(kept_above=store.log.highest_remote_offset) == []
    known = {each.segment_id async for each in store.world.metadata.list_remote_log_segments(TIP)}
    assert known == {each.segment_id for each in store.sound()}
