"""Copy, fetch, verify and delete have separate limits that change while work goes on (T47, T57)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.limits_file import LimitsFile
from aquifer_storage.domain.limited_store import LimitedObjectStore
from aquifer_storage.domain.work_limits import UNLIMITED, Work, WorkGate, WorkLimit, WorkLimits
from contract.object_store import ObjectStoreContract
from fixtures.hooked_object_store import HookedObjectStore


class TestUnlimited(ObjectStoreContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[LimitedObjectStore]:
        store = LimitedObjectStore(FilesystemObjectStore(tmp_path), WorkLimits(), Work.COPY)
        await store.check()
        yield store
        await store.close()


async def pay(gate: WorkGate, sizes: Sequence[int]) -> float:
    """Seconds until all have paid."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await asyncio.gather(*(gate.pay(size) for size in sizes))
    return loop.time() - start


async def test_bytes_come_no_faster_than_the_rate_with_a_second_ahead() -> None:
    gate = WorkGate()
    gate.change(WorkLimit(bytes_per_s=10_000))
    assert await pay(gate, [1_000] * 4) >= 0.29
    assert await pay(gate, [0]) >= 0.09


async def test_who_is_larger_than_a_second_goes_too() -> None:
    gate = WorkGate()
    gate.change(WorkLimit(bytes_per_s=100_000))
    async with asyncio.timeout(60):
        await gate.pay(120_000)
        await gate.pay(1)


async def test_a_change_counts_for_who_waits_already() -> None:
    gate = WorkGate()
    gate.change(WorkLimit(bytes_per_s=1, concurrency=1))
    async with gate.request():
        waiting = [asyncio.create_task(gate.pay(1_000_000)) for _ in range(3)]

        async def enter() -> None:
            async with gate.request():
                pass

        waiting.append(asyncio.create_task(enter()))
        await asyncio.sleep(0)
        gate.change(UNLIMITED)
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)


async def test_who_is_cancelled_leaves_the_place_to_others() -> None:
    gate = WorkGate()
    gate.change(WorkLimit(concurrency=1))

    async def enter() -> None:
        async with gate.request():
            pass

    async with gate.request():
        first, second = (asyncio.create_task(enter()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
    first_done = asyncio.gather(first, return_exceptions=True)
    async with asyncio.timeout(60):
        await second
        assert isinstance((await first_done)[0], asyncio.CancelledError)
        await enter()


async def test_who_gives_up_before_its_bytes_have_gone_leaves_no_debt_to_others() -> None:
    """Requests that a limit keeps longer than they have time would put off every one that follows."""
    gate = WorkGate()
    gate.change(WorkLimit(bytes_per_s=1_000))
    await gate.pay(100)
    given_up = [asyncio.create_task(gate.pay(1_000_000)) for _ in range(20)]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    async with asyncio.timeout(60):
        await gate.pay(10)
        await gate.pay(10)


async def test_one_kind_of_work_does_not_wait_for_another(tmp_path: Path) -> None:
    """T47: a scrub at its limit does not hold up readers; deletions count as such, whoever makes them."""
    limits = WorkLimits()
    limits.apply({Work.VERIFY: WorkLimit(concurrency=1), Work.DELETE: WorkLimit(concurrency=1)})
    held = asyncio.Event()

    async def before(operation: str, key: str) -> None:
        if key == "held":
            await held.wait()

    hooked = HookedObjectStore(FilesystemObjectStore(tmp_path), before)
    verifying, fetching, copying = (
        LimitedObjectStore(hooked, limits, work) for work in (Work.VERIFY, Work.FETCH, Work.COPY)
    )
    await copying.put("a", b"1")
    blocked = asyncio.create_task(verifying.size_bytes("held"))
    deleting = asyncio.create_task(copying.delete(["held"]))
    await asyncio.sleep(0)
    waiting = [
        asyncio.create_task(verifying.get("a")),
        asyncio.create_task(fetching.delete(["b"])),
    ]
    async with asyncio.timeout(60):
        assert await fetching.get("a") == b"1"
        await copying.put("c", b"2")
    assert not any(task.done() for task in waiting)
    held.set()
    async with asyncio.timeout(60):
        await asyncio.gather(blocked, deleting, *waiting)
    await hooked.close()


async def test_a_read_that_a_limit_keeps_too_long_has_received_nothing(tmp_path: Path) -> None:
    """Bytes that are thrown away would be counted all the same: readers in a hurry would leave nothing for anybody."""
    limits = WorkLimits()
    hooked = HookedObjectStore(FilesystemObjectStore(tmp_path))
    store = LimitedObjectStore(hooked, limits, Work.FETCH)
    await store.put("a", bytes(1_000))
    limits.apply({Work.FETCH: WorkLimit(bytes_per_s=1)})
    assert len(await store.get("a", 0, 1_000)) == 1_000
    for read in (store.get("a", 0, 500), anext(store.read("a", 0, [500, 500]))):
        waiting = asyncio.create_task(read)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert hooked.count("get") == 1
    assert hooked.count("read") == 0
    await store.close()


async def test_a_read_in_pieces_has_its_place_until_its_end(tmp_path: Path) -> None:
    """It keeps its connection as long: others that had the place meanwhile would wait for that."""
    limits = WorkLimits()
    limits.apply({Work.FETCH: WorkLimit(concurrency=1)})
    hooked = HookedObjectStore(FilesystemObjectStore(tmp_path))
    store = LimitedObjectStore(hooked, limits, Work.FETCH)
    await store.put("a", b"0123")
    async with asyncio.timeout(60):
        async for piece in store.read("a", 0, [2, 2]):
            assert len(piece) == 2
            if piece == b"01":
                other = asyncio.create_task(store.size_bytes("a"))
            await asyncio.sleep(0)
            assert hooked.count("size_bytes") == 0
        assert await other == 4
    await store.close()


async def test_the_file_is_applied_when_it_changes_and_a_refused_one_changes_nothing(
    tmp_path: Path,
) -> None:
    """T57."""
    path, limits = tmp_path / "limits.json", WorkLimits()
    file = LimitsFile(path, limits)
    with pytest.raises(InvalidConfigurationError, match=r"limits\.json"):
        await file.reload()
    path.write_text('{"copy": {"bytes_per_s": 1000}, "delete": {"concurrency": 2}}')
    await file.reload()
    assert limits.of(Work.COPY).limit == WorkLimit(bytes_per_s=1000)
    assert limits.of(Work.DELETE).limit == WorkLimit(concurrency=2)
    assert limits.of(Work.FETCH).limit == UNLIMITED
    for text in (
        "",
        '{"copies": {}}',
        '{"copy": {"speed": 1}}',
        '{"copy": {"bytes_per_s": 0}}',
        '{"copy": {"concurrency": -1}}',
    ):
        path.write_text(text)
        with pytest.raises(InvalidConfigurationError):
            await file.reload()
        assert limits.of(Work.COPY).limit == WorkLimit(bytes_per_s=1000)
    path.write_text('{"fetch": {"concurrency": 3}}')
    await file.reload()
    assert limits.of(Work.COPY).limit == UNLIMITED
    assert limits.of(Work.FETCH).limit == WorkLimit(concurrency=3)
