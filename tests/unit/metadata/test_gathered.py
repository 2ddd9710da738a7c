"""Questions that arrive while others are being answered are asked together."""

import asyncio
from collections.abc import Sequence

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_metadata.adapters.postgres.gathered import GatheredQuestions
from fixtures.polling import eventually

WAIT_S = 60


class Oracle:
    """Answers with the question itself, once it is let."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.open = asyncio.Event()
        self.failure: BaseException | None = None
        self.unaskable: int | None = None

    async def ask(self, questions: Sequence[int]) -> list[int]:
        self.groups.append(list(questions))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        if self.unaskable in questions:
            raise ValueError("no such question")
        return list(questions)


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
def gathered(oracle: Oracle) -> GatheredQuestions[int, int]:
    return GatheredQuestions(oracle.ask, most_at_once=1, most_together=4)


async def asked(
    gathered: GatheredQuestions[int, int], oracle: Oracle, others: int
) -> list["asyncio.Task[int]"]:
    """The first question is being asked, the others wait."""
    tasks = [asyncio.create_task(gathered.answer(0))]
    await eventually(lambda: oracle.groups == [[0]], timeout_s=WAIT_S)
    tasks += [asyncio.create_task(gathered.answer(number + 1)) for number in range(others)]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_those_that_wait_are_asked_together_up_to_a_number(
    gathered: GatheredQuestions[int, int], oracle: Oracle
) -> None:
    tasks = await asked(gathered, oracle, 6)
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4, 5, 6]
        assert oracle.groups == [[0], [1, 2, 3, 4], [5, 6]]
        assert await gathered.answer(7) == 7


async def test_after_company_a_leader_waits_for_those_on_their_way_and_one_without_company_does_not() -> (
    None
):
    """A question a few turns of the event loop behind is taken along, as gRPC brings calls that came in one packet."""
    oracle = Oracle()
    gathered = GatheredQuestions(oracle.ask, most_at_once=1, most_together=8)

    async def behind(question: int) -> int:
        for _ in range(4):
            await asyncio.sleep(0)
        return await gathered.answer(question)

    async def two(first: int) -> None:
        answers = asyncio.gather(gathered.answer(first), behind(first + 1))
        assert list(await answers) == [first, first + 1]

    async with asyncio.timeout(WAIT_S):
        crowd = await asked(gathered, oracle, 6)
        oracle.open.set()
        await asyncio.gather(*crowd)
        await two(10)
        assert oracle.groups[2:] == [[10, 11]]
        for question in range(20, 30):
            await gathered.answer(question)
        await two(30)
    assert oracle.groups[-2:] == [[30], [31]]


async def test_a_leader_does_not_wait_without_end() -> None:
    """A new question comes with every turn of the event loop, and the first is asked nevertheless."""
    oracle = Oracle()
    gathered = GatheredQuestions(oracle.ask, most_at_once=1, most_together=1_000_000)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as callers:
        crowd = await asked(gathered, oracle, 6)
        oracle.open.set()
        await asyncio.gather(*crowd)
        first = callers.create_task(gathered.answer(10))
        others = 0
        while not first.done():
            others += 1
            callers.create_task(gathered.answer(10 + others))
            await asyncio.sleep(0)
    assert first.result() == 10
    assert sum(map(len, oracle.groups)) == 7 + 1 + others


async def test_a_leader_cancelled_while_it_waits_for_others_hands_over() -> None:
    oracle = Oracle()
    gathered = GatheredQuestions(oracle.ask, most_at_once=1, most_together=8)
    crowd = await asked(gathered, oracle, 6)
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*crowd)
        leader = asyncio.create_task(gathered.answer(10))
        follower = asyncio.create_task(gathered.answer(11))
        await asyncio.sleep(0)
        leader.cancel()
        assert await follower == 11
    assert oracle.groups[2:] == [[11]]


async def test_a_cancelled_leader_takes_nobody_with_it(
    gathered: GatheredQuestions[int, int], oracle: Oracle
) -> None:
    first, *others = await asked(gathered, oracle, 3)
    first.cancel()
    await eventually(lambda: len(oracle.groups) == 2, timeout_s=WAIT_S)
    others[0].cancel()
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*others[1:]) == [2, 3]
        assert await gathered.answer(9) == 9
    assert oracle.groups == [[0], [1, 2, 3], [2, 3], [9]]


async def test_who_gives_up_while_waiting_is_not_asked_for(
    gathered: GatheredQuestions[int, int], oracle: Oracle
) -> None:
    first, *others = await asked(gathered, oracle, 3)
    others[0].cancel()
    others[2].cancel()
    await asyncio.wait([others[0], others[2]])
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(first, others[1]) == [0, 2]
    assert oracle.groups == [[0], [2]]


async def test_an_outage_is_told_to_all_at_once(
    gathered: GatheredQuestions[int, int], oracle: Oracle
) -> None:
    tasks = await asked(gathered, oracle, 3)
    oracle.failure = RemoteStorageUnavailableError("the database does not answer")
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, RemoteStorageUnavailableError) for outcome in outcomes)
    assert oracle.groups == [[0], [1, 2, 3]]
    oracle.failure = None
    assert await gathered.answer(9) == 9


async def test_a_question_that_cannot_be_asked_fails_alone(
    gathered: GatheredQuestions[int, int], oracle: Oracle
) -> None:
    tasks = await asked(gathered, oracle, 3)
    oracle.unaskable = 2
    oracle.open.set()
    async with asyncio.timeout(WAIT_S):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [int, int, ValueError, int]
