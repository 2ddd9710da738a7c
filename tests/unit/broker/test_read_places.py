import asyncio
from collections.abc import Hashable
from functools import partial

import pytest
from aquifer_broker.tiering.read_places import Place, ReadPlaces
from fixtures.polling import eventually

_LONG_S = 600.0


class _Limit:
    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self) -> float:
        return self.value


async def _waiting(
    group: asyncio.TaskGroup, places: ReadPlaces, reader: Hashable, order: list[Place]
) -> tuple[Place, asyncio.Task[None]]:
    """A place that is asked for and not there yet; once it is, it is noted in `order`."""
    place = places.place(reader)

    async def take() -> None:
        await place.take()
        order.append(place)

    before = places.waiting
    task = group.create_task(take())
    await eventually(lambda: places.waiting == before + 1)
    return place, task


def _is_longer(order: list[Place], before: int) -> bool:
    return len(order) > before


async def test_without_a_limit_nobody_waits() -> None:
    places = ReadPlaces()
    for _ in range(1000):
        await places.place("reader").take()

    assert places.used == 1000


async def test_readers_take_turns_and_reads_of_one_come_in_order() -> None:
    places = ReadPlaces(_Limit(1), linger_s=_LONG_S)
    order: list[Place] = []
    async with asyncio.TaskGroup() as group:
        held = places.place("greedy")
        await held.take()
        much = [(await _waiting(group, places, "greedy", order))[0] for _ in range(3)]
        little = (await _waiting(group, places, "modest", order))[0]
        for _ in range(4):
            order_before = len(order)
            held.give_back()
            await eventually(partial(_is_longer, order, order_before))
            assert places.used == 1
            held = order[-1]

    assert order == [much[0], little, much[1], much[2]]
    assert places.waiting == 0


async def test_a_raised_limit_lets_in_who_waits_and_a_lowered_one_takes_nothing_away() -> None:
    limit = _Limit(1)
    places = ReadPlaces(limit, linger_s=_LONG_S)
    order: list[Place] = []
    async with asyncio.TaskGroup() as group:
        await places.place("a").take()
        asked = [(await _waiting(group, places, "b", order))[0] for _ in range(3)]
        limit.value = 3
        places.let_in()
        await eventually(lambda: len(order) == 2)
        assert places.used == 3
        limit.value = 1
        places.let_in()
        assert places.used == 3
        order[0].give_back()
        order[1].give_back()
        assert places.waiting == 1
        limit.value = float("inf")
        places.let_in()

    assert order == asked


async def test_a_place_is_given_back_once() -> None:
    places = ReadPlaces(_Limit(2), linger_s=_LONG_S)
    first, second = places.place("a"), places.place("b")
    await first.take()
    await second.take()
    for _ in range(3):
        first.give_back()

    assert places.used == 1
    never = places.place("c")
    never.give_back()
    assert places.used == 1


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    places = ReadPlaces(_Limit(1), linger_s=_LONG_S)
    order: list[Place] = []
    async with asyncio.TaskGroup() as group:
        held = places.place("a")
        await held.take()
        gone, task = await _waiting(group, places, "b", order)
        stays = (await _waiting(group, places, "c", order))[0]
        task.cancel()
        await asyncio.wait([task])
        assert places.waiting == 1
        gone.give_back()
        assert places.used == 1
        held.give_back()

    assert order == [stays]
    assert places.used == 1


async def test_a_place_given_to_who_is_cancelled_in_the_same_pass_goes_on_to_the_next() -> None:
    places = ReadPlaces(_Limit(1), linger_s=_LONG_S)
    order: list[Place] = []
    async with asyncio.TaskGroup() as group:
        held = places.place("a")
        await held.take()
        _, task = await _waiting(group, places, "b", order)
        stays = (await _waiting(group, places, "c", order))[0]
        held.give_back()
        task.cancel()

    assert order == [stays]
    assert places.used == 1


async def test_a_reader_that_does_not_come_loses_its_place_to_another() -> None:
    places = ReadPlaces(_Limit(1), linger_s=0.01)
    idle = places.place("a")
    await idle.take()
    idle.taken_from()
    idle.taken_from()

    async with asyncio.timeout(60):
        await places.place("b").take()

    assert not idle.held
    assert places.used == 1


async def test_a_place_is_held_while_nothing_has_come() -> None:
    places = ReadPlaces(_Limit(1), linger_s=0.0)
    reading = places.place("a")
    await reading.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await places.place("b").take()

    assert reading.held
    assert places.waiting == 0


async def test_the_most_in_use_is_that_since_the_last_look() -> None:
    taken: list[int] = []
    places = ReadPlaces(on_used=lambda: taken.append(1))
    held = [places.place("a") for _ in range(3)]
    for place in held:
        await place.take()
    held[0].give_back()
    held[1].give_back()
    assert places.most_used == 3
    places.reset_most_used()
    assert places.most_used == 1
    assert len(taken) == 3
