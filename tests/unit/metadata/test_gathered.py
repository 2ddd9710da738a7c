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
