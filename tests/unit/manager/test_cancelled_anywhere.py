"""Whatever is waited for when a read or a copy is cancelled, what it held is given back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.domain.upload_slots import UploadSlots
from fixtures.manager_fetches import CountingMetadata, Reads, aborted, committed
from fixtures.manager_segments import batch
from fixtures.manager_tasks import TaskWorld
from fixtures.manager_world import SteppedClock, settle

_MAX_BYTES = 1000
_PLACES = 8


class WaitingStorage(InMemoryRemoteStorageManager):
    """Lets others run around everything."""

    async def fetch_index(self, *args: Any) -> bytes:
        await asyncio.sleep(0)
        return await super().fetch_index(*args)

    async def fetch_records(self, *args: Any, **kwargs: Any) -> AsyncIterator[bytes | memoryview]:
        async for piece in super().fetch_records(*args, **kwargs):
            await asyncio.sleep(0)
            yield piece
        await asyncio.sleep(0)


class WaitingMetadata(CountingMetadata):
    """Lets others run around everything."""

    async def remote_log_segment_metadata(self, *args: Any) -> RemoteLogSegmentMetadata | None:
        await asyncio.sleep(0)
        return await super().remote_log_segment_metadata(*args)

    async def next_segment_with_txn_index(self, *args: Any) -> RemoteLogSegmentMetadata | None:
        await asyncio.sleep(0)
        return await super().next_segment_with_txn_index(*args)


async def _reads() -> Reads:
    """One reader, and a quota that one leaked reservation uses up."""
    reads = Reads(
        readers=1,
        bytes_per_second=_MAX_BYTES,
        storage=WaitingStorage(),
        metadata=WaitingMetadata(),
    )
    await reads.put(batch(0), batch(1), aborted=[aborted(0, 1, 2)])
    await reads.put(batch(2), batch(3), aborted=[aborted(2, 3, 4)])
    return reads


async def _fetch(reads: Reads) -> None:
    await reads.fetch(1, max_bytes=_MAX_BYTES)


async def _plan(reads: Reads) -> None:
    await reads.service.plan(committed(1, max_bytes=_MAX_BYTES), 30.0)


async def _is_cancelled(work: Coroutine[Any, Any, object], after_turns: int) -> bool:
    """Cancels something after so many turns of the loop; False: it had ended."""
    task = asyncio.create_task(work)
    await settle(after_turns)
    had_ended = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return not had_ended


@pytest.mark.parametrize("read", [_fetch, _plan])
async def test_a_read_gives_its_reader_and_its_bytes_back(
    read: Callable[[Reads], Coroutine[Any, Any, None]],
) -> None:
    turns = 0
    while await _is_cancelled(read(reads := await _reads()), turns):
        assert (reads.pool.active, reads.pool.pending) == (0, 0)
        await reads.fetch(0, max_bytes=_MAX_BYTES)
        turns += 1
    assert turns > 3


async def test_a_plan_that_finds_nothing_uses_up_no_quota() -> None:
    reads = await _reads()
    for _ in range(3):
        with pytest.raises(OffsetOutOfRangeError):
            await reads.service.plan(committed(4, max_bytes=_MAX_BYTES), 30.0)
    await reads.fetch(0, max_bytes=_MAX_BYTES)


def _waiting(around: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def slowly(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        answer = await around(*args, **kwargs)
        await asyncio.sleep(0)
        return answer

    return slowly


def _world() -> TaskWorld:
    world = TaskWorld()
    world.roll(world.leading(), 4)
    for faults in (world.faults, world.broker.faults):
        faults.around = _waiting(faults.around)  # type: ignore[method-assign]
    return world


def _free_places(world: TaskWorld) -> int:
    with ExitStack() as taken:
        count = 0
        while (place := world.uploads.further_place("leader")) is not None:
            taken.callback(place.leave)
            count += 1
        return count


async def test_a_copy_gives_its_places_back_and_the_next_run_leaves_nothing_behind() -> None:
    turns = 0
    while await _is_cancelled((world := _world()).copy(), turns):
        assert _free_places(world) == _PLACES
        assert (world.uploads.stalled(), world.uploads.lent()) == (0, 0)
        for run in (world.copy, world.expire, world.copy):
            await run()
        assert await world.finished() == [(0, 99), (100, 199), (200, 299), (300, 399)]
        assert await world.nothing_dangles()
        turns += 1
    assert turns > 20


async def test_an_upload_that_stood_still_lends_nothing_once_it_is_left() -> None:
    clock = SteppedClock()
    slots = UploadSlots(per_broker=1, stalled_after_s=5.0, clock=clock)
    stored = asyncio.Event()

    async def upload() -> None:
        async with slots.upload():
            await stored.wait()

    for turns in range(6):
        stored.clear()
        task = asyncio.create_task(upload())
        await clock.advance(6)
        assert slots.stalled() == 1
        stored.set()
        await settle(turns)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert slots.stalled() == 0
