"""Work on many things at once: in order, bounded, and ended with its reader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aquifer_storage.domain.in_order import in_order


class Works:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    async def do(self, thing: int) -> str:
        self.begun.append(thing)
        try:
            await self.gates.setdefault(thing, asyncio.Event()).wait()
            return str(thing)
        finally:
            self.ended.append(thing)

    def let(self, *things: int) -> None:
        for thing in things:
            self.gates.setdefault(thing, asyncio.Event()).set()


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_results_come_in_order_and_no_more_than_allowed_is_under_way() -> None:
    works = Works()
    async with aclosing(in_order(numbers(10), works.do, 3)) as results:
        first = asyncio.create_task(anext(results))
        await settled()
        assert works.begun == [0, 1, 2]
        works.let(2, 1)
        await settled()
        assert not first.done()
        works.let(0)
        assert await first == "0"
        works.let(*range(10))
        assert [found async for found in results] == [str(number) for number in range(1, 10)]
    assert works.begun == list(range(10))


async def test_who_stops_reading_ends_what_is_under_way() -> None:
    works = Works()
    works.let(0)
    async with aclosing(in_order(numbers(10), works.do, 3)) as results:
        assert await anext(results) == "0"
    assert sorted(works.ended) == works.begun == [0, 1, 2]


async def test_the_first_failure_ends_the_others() -> None:
    works = Works()

    async def failing(thing: int) -> str:
        if thing == 1:
            raise ValueError("no")
        return await works.do(thing)

    works.let(0)
    results = in_order(numbers(10), failing, 3)
    assert await anext(results) == "0"
    with pytest.raises(ValueError, match="no"):
        await anext(results)
    assert sorted(works.ended) == sorted(works.begun)


async def test_nothing_gives_nothing() -> None:
    assert [found async for found in in_order(numbers(0), Works().do, 3)] == []
