"""The upload budget: bounded, in turn, safe when somebody leaves."""

import asyncio

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_storage.domain.part_budget import PartBudget, PartBuffer
from fixtures.polling import eventually


async def test_buffers_are_handed_out_in_turn_and_never_beyond_the_budget() -> None:
    """T45: memory stays flat however many upload."""
    budget = PartBudget(30)
    served: list[int] = []
    most_bytes = 0

    async def use(number: int, size_bytes: int) -> None:
        nonlocal most_bytes
        buffer = await budget.acquire(size_bytes)
        served.append(number)
        most_bytes = max(most_bytes, budget.used_bytes)
        await asyncio.sleep(0)
        budget.release(buffer)

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(use(number, 5 + 5 * (number % 5)))
    assert served == list(range(50))
    assert most_bytes <= 30
    assert budget.used_bytes == 0


async def test_a_small_buffer_does_not_overtake_a_large_one() -> None:
    budget = PartBudget(30)
    held = await budget.acquire(20)
    large = asyncio.create_task(budget.acquire(30))
    await asyncio.sleep(0)
    small = asyncio.create_task(budget.acquire(5))
    await asyncio.sleep(0)
    assert not small.done()
    budget.release(held)
    budget.release(await large)
    budget.release(await small)


async def test_who_stops_waiting_takes_nothing_and_lets_the_next_go_on() -> None:
    budget = PartBudget(30)
    held = await budget.acquire(20)
    leaving = asyncio.create_task(budget.acquire(30))
    await asyncio.sleep(0)
    following = asyncio.create_task(budget.acquire(10))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    budget.release(await following)
    assert budget.used_bytes == 20
    budget.release(held)


async def test_who_is_cancelled_with_a_buffer_on_its_way_gives_it_back() -> None:
    budget = PartBudget(10)
    held = await budget.acquire(10)
    served = asyncio.create_task(budget.acquire(10))
    await asyncio.sleep(0)
    budget.release(held)
    served.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served
    assert budget.used_bytes == 0


async def test_a_part_that_can_never_fit_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError):
        await PartBudget(10).acquire(11)


def test_a_buffer_takes_what_it_has_room_for() -> None:
    buffer = PartBuffer(bytearray(5))
    assert buffer.fill(memoryview(b"abc")) == 3
    assert not buffer.is_full
    assert buffer.fill(memoryview(b"defg")) == 2
    assert buffer.is_full
    assert bytes(buffer.data) == b"abcde"


async def test_work_beside_the_buffers_takes_only_what_is_free_and_lent() -> None:
    budget = PartBudget(100, reservable_bytes=40)
    assert not budget.try_reserve(41)
    assert budget.try_reserve(30)
    assert not budget.try_reserve(30)
    buffer = await budget.acquire(70)
    waiting = asyncio.create_task(budget.acquire(20))
    await asyncio.sleep(0)
    assert not budget.try_reserve(1)
    budget.give_back(30)
    second = await waiting
    budget.release(second)
    budget.release(buffer)
    assert budget.used_bytes == 0
    assert budget.try_reserve(40)


async def test_who_gives_up_while_others_give_back_is_cancelled_and_takes_nothing() -> None:
    budget = PartBudget(10)
    held = await budget.acquire(10)
    waiting = asyncio.create_task(budget.acquire(10))
    await eventually(lambda: budget._waiting)
    waiting.cancel()
    budget.release(held)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.used_bytes == 0


async def test_memory_is_used_again_and_stays_inside_the_budget() -> None:
    budget = PartBudget(30, reservable_bytes=15)
    first, second = await budget.acquire(10), await budget.acquire(10)
    first.fill(memoryview(b"old bytes!"))
    budget.release(first)
    assert (budget.used_bytes, budget.spare_bytes) == (10, 10)
    again = await budget.acquire(10)
    assert budget.spare_bytes == 0
    assert bytes(again.data) == b""
    again.fill(memoryview(b"new"))
    assert bytes(again.data) == b"new"
    budget.release(again)
    assert budget.try_reserve(15)
    assert budget.used_bytes + budget.spare_bytes <= 30
    budget.give_back(15)
    budget.release(second)
    other = await budget.acquire(30)
    assert (budget.used_bytes, budget.spare_bytes) == (30, 0)
    budget.release(other)


async def test_memory_is_given_back_when_nothing_is_copied_any_more() -> None:
    budget = PartBudget(30, spare_s=0.01)
    budget.release(await budget.acquire(10))
    assert budget.spare_bytes == 10
    await eventually(lambda: budget.spare_bytes == 0, timeout_s=60)
    held = await budget.acquire(10)
    budget.release(await budget.acquire(10))
    assert budget.spare_bytes == 10, "while others copy it is kept"
    budget.release(held)
    await eventually(lambda: budget.spare_bytes == 0, timeout_s=60)


async def test_what_is_held_beside_the_buffers_always_leaves_room_for_one() -> None:
    """T45: holders come in their turn, one that needs more than may be held comes alone, and none keeps a buffer waiting."""
    budget = PartBudget(100, reservable_bytes=10, holdable_bytes=50)
    most_bytes = holders = finished = 0

    async def work(size_bytes: int) -> None:
        nonlocal most_bytes, holders, finished
        async with budget.hold(size_bytes):
            holders += 1
            assert size_bytes <= 50 or holders == 1
            budget.release(await budget.acquire(40))
            await asyncio.sleep(0)
            most_bytes = max(most_bytes, budget.used_bytes)
            holders -= 1
        finished += 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(60):
            group.create_task(work((10, 25, 50, 70)[number % 4]))
    assert finished == 60
    assert most_bytes <= 100
    assert budget.used_bytes == 0


async def test_who_gives_up_before_or_as_it_may_hold_holds_nothing() -> None:
    budget = PartBudget(100, holdable_bytes=50)

    async def hold() -> None:
        async with budget.hold(50):
            await asyncio.Event().wait()

    first, second, third = (asyncio.create_task(hold()) for _ in range(3))
    await eventually(lambda: budget.used_bytes == 50)
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await eventually(lambda: budget.used_bytes == 50)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    assert budget.used_bytes == 0
    async with budget.hold(50):
        assert budget.used_bytes == 50


async def test_memory_is_given_back_when_the_last_one_holds_nothing_any_more() -> None:
    budget = PartBudget(30, holdable_bytes=10, spare_s=0.01)
    async with budget.hold(5):
        budget.release(await budget.acquire(10))
        assert budget.spare_bytes == 10
    await eventually(lambda: budget.spare_bytes == 0, timeout_s=60)


async def test_memory_that_the_machine_does_not_have_is_not_counted_as_used() -> None:
    """Else a budget would be less for every copy that failed so, until none goes on any more."""
    budget = PartBudget(1 << 62)
    for _ in range(3):
        with pytest.raises(MemoryError):
            await budget.acquire(1 << 61)
    assert budget.used_bytes == 0
    budget.release(await budget.acquire(10))
