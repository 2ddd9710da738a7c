"""Questions that arrive while others are being answered are asked together."""

import asyncio
from collections.abc import Sequence

import pytest
from aquifer_core.errors import PreconditionError, UnavailableError
from aquifer_core.gathered import GatheredQuestions
from fixtures.polling import eventually

WAIT_S = 60


class Oracle:
    """Answers tenfold, once it is let.

    Attributes:
        groups: what was asked, request by request.
        refused: questions that fail every request they are part of.
        failure: raised by every request.
        stuck: the request that is not answered, the first time it comes.
    """

    def __init__(self, *, most_at_once: int = 1, most_together: int = 4) -> None:
        self.groups: list[list[int]] = []
        self.open = asyncio.Event()
        self.refused: set[int] = set()
        self.failure: Exception | None = None
        self.stuck: list[int] | None = None
        self.gathered: GatheredQuestions[int, int] = GatheredQuestions(
            self._ask,
            most_at_once=most_at_once,
            most_together=most_together,
            is_of_one=lambda error: isinstance(error, PreconditionError),
        )

    async def _ask(self, questions: Sequence[int]) -> list[int]:
        self.groups.append(list(questions))
        await self.open.wait()
        if self.stuck == questions:
            self.stuck = None
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        if self.refused & set(questions):
            raise PreconditionError("refused")
        return [each * 10 for each in questions]

    async def asked(self, others: int) -> list["asyncio.Task[int]"]:
        """Tasks of question 0, which is being asked, and of further ones, which wait."""
        tasks = [asyncio.create_task(self.gathered.answer(0))]
        await eventually(lambda: self.groups == [[0]], timeout_s=WAIT_S)
        tasks += [asyncio.create_task(self.gathered.answer(number + 1)) for number in range(others)]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


async def test_those_that_wait_are_asked_together_up_to_a_number(oracle: Oracle) -> None:
    tasks = await oracle.asked(6)
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*tasks) == [0, 10, 20, 30, 40, 50, 60]
        assert oracle.groups == [[0], [1, 2, 3, 4], [5, 6]]
        assert await oracle.gathered.answer(7) == 70


async def test_after_company_a_leader_waits_for_those_on_their_way_and_one_without_company_does_not() -> (
    None
):
    """A question a few turns of the event loop behind is taken along, as gRPC brings calls that came in one packet."""
    oracle = Oracle(most_together=8)

    async def behind(question: int) -> int:
        for _ in range(4):
            await asyncio.sleep(0)
        return await oracle.gathered.answer(question)

    async def two(first: int) -> None:
        answers = asyncio.gather(oracle.gathered.answer(first), behind(first + 1))
        assert list(await answers) == [first * 10, first * 10 + 10]

    async with asyncio.timeout(WAIT_S):
        crowd = await oracle.asked(6)
        oracle.open.set()
        await asyncio.gather(*crowd)
        await two(10)
        assert oracle.groups[2:] == [[10, 11]]
        for question in range(20, 30):
            await oracle.gathered.answer(question)
        await two(30)
    assert oracle.groups[-2:] == [[30], [31]]


async def test_a_leader_does_not_wait_without_end() -> None:
    """A new question comes with every turn of the event loop, and the first is asked nevertheless."""
    oracle = Oracle(most_together=1_000_000)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as callers:
        crowd = await oracle.asked(6)
        oracle.open.set()
        await asyncio.gather(*crowd)
        first = callers.create_task(oracle.gathered.answer(10))
        others = 0
        while not first.done():
            others += 1
            callers.create_task(oracle.gathered.answer(10 + others))
            await asyncio.sleep(0)
    assert first.result() == 100
    assert sum(map(len, oracle.groups)) == 7 + 1 + others


async def test_a_leader_cancelled_while_it_waits_for_others_hands_over() -> None:
    oracle = Oracle(most_together=8)
    crowd = await oracle.asked(6)
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*crowd)
        leader = asyncio.create_task(oracle.gathered.answer(10))
        follower = asyncio.create_task(oracle.gathered.answer(11))
        await asyncio.sleep(0)
        leader.cancel()
        assert await follower == 110
    assert oracle.groups[2:] == [[11]]


async def test_as_many_requests_as_allowed_are_under_way_at_once() -> None:
    oracle = Oracle(most_at_once=2)
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(oracle.gathered.answer(number))
        await eventually(lambda: len(oracle.groups) == 2, timeout_s=WAIT_S)
        oracle.open.set()
    assert sorted(number for asked in oracle.groups for number in asked) == [0, 1, 2, 3]


async def test_a_cancelled_leader_takes_nobody_with_it(oracle: Oracle) -> None:
    first, *others = await oracle.asked(3)
    first.cancel()
    await eventually(lambda: len(oracle.groups) == 2, timeout_s=WAIT_S)
    others[0].cancel()
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*others[1:]) == [20, 30]
        assert await oracle.gathered.answer(9) == 90
    assert oracle.groups == [[0], [1, 2, 3], [2, 3], [9]]


async def test_who_gives_up_while_waiting_is_not_asked_for(oracle: Oracle) -> None:
    first, *others = await oracle.asked(3)
    others[0].cancel()
    others[2].cancel()
    await asyncio.wait([others[0], others[2]])
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(first, others[1]) == [0, 20]
    assert oracle.groups == [[0], [2]]


async def test_an_outage_is_told_to_all_and_not_asked_about_again(oracle: Oracle) -> None:
    tasks = await oracle.asked(3)
    oracle.failure = UnavailableError("down")
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        assert oracle.groups == [[0], [1, 2, 3]]
        oracle.failure = None
        assert await oracle.gathered.answer(9) == 90


@pytest.mark.parametrize("refused", [1, 3, 4])
async def test_one_that_is_refused_is_found_by_halves_and_fails_alone(
    oracle: Oracle, refused: int
) -> None:
    tasks = await oracle.asked(4)
    oracle.refused = {refused}
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes.pop(refused), PreconditionError)
    assert outcomes == [each * 10 for each in range(5) if each != refused]
    assert [1, 2] in oracle.groups
    assert [3, 4] in oracle.groups
    assert len(oracle.groups) == 6


async def test_a_leader_that_is_cancelled_between_the_halves_leaves_the_rest_to_the_next(
    oracle: Oracle,
) -> None:
    first, *others = await oracle.asked(4)
    oracle.refused, oracle.stuck = {1}, [3, 4]
    oracle.open.set()
    await eventually(lambda: oracle.groups[-1] == [3, 4], timeout_s=WAIT_S)
    others[0].cancel()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(first, *others[1:]) == [0, 20, 30, 40]
        with pytest.raises(asyncio.CancelledError):
            await others[0]
    assert oracle.groups[-2:] == [[3, 4], [3, 4]]
