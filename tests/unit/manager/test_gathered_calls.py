"""Questions to metadata that runs ask at the same time go out together."""

import asyncio
from collections.abc import Sequence

import pytest
from aquifer_core.errors import PreconditionError, UnavailableError
from aquifer_manager.domain.gathered_calls import GatheredCalls
from fixtures.manager_world import settle


class Answers:
    """Answers tenfold, when it may; `refused` cannot be answered."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may = asyncio.Event()
        self.refused: set[int] = set()
        self.down = False
        self.gathered: GatheredCalls[int, int] = GatheredCalls(
            self.ask, name="tenfold", most_together=4
        )

    async def ask(self, questions: Sequence[int]) -> list[int]:
        self.calls.append(list(questions))
        await self.may.wait()
        if self.down:
            raise UnavailableError("down")
        if self.refused & set(questions):
            raise PreconditionError("refused")
        return [each * 10 for each in questions]


async def test_questions_asked_meanwhile_share_calls() -> None:
    made = Answers()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(made.gathered.answer(0))]
        await settle()
        asked += [group.create_task(made.gathered.answer(each)) for each in range(1, 7)]
        await settle()
        made.may.set()
    assert [each.result() for each in asked] == [each * 10 for each in range(7)]
    assert made.calls == [[0], [1, 2, 3, 4], [5, 6]]


async def test_one_that_is_refused_does_not_fail_the_others() -> None:
    made = Answers()
    made.may.set()
    made.refused = {2}
    found = await asyncio.gather(
        *(made.gathered.answer(each) for each in range(4)), return_exceptions=True
    )
    assert isinstance(found.pop(2), PreconditionError)
    assert found == [0, 10, 30]


async def test_an_outage_is_told_to_all_and_not_repeated_for_each() -> None:
    made = Answers()
    made.may.set()
    made.down = True
    found = await asyncio.gather(
        *(made.gathered.answer(each) for each in range(4)), return_exceptions=True
    )
    assert [type(each) for each in found] == [UnavailableError] * 4
    assert len(made.calls) == 1


async def test_whoever_gives_up_takes_nobody_along() -> None:
    made = Answers()
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(made.gathered.answer(each)) for each in (1, 2))
        await settle()
        first.cancel()
        made.may.set()
    assert second.result() == 20


async def test_closing_tells_those_who_wait() -> None:
    made = Answers()

    async def asks() -> None:
        with pytest.raises(UnavailableError):
            await made.gathered.answer(1)

    async with asyncio.TaskGroup() as group:
        group.create_task(asks())
        await settle()
        await made.gathered.close()
        await made.gathered.close()
    assert made.calls == [[1]]
