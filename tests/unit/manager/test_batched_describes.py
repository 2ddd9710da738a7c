"""Tasks of one broker describe their logs together, with answers that are no older than they may be (SR-18)."""

import asyncio
from collections.abc import Sequence

import pytest
from aquifer_core.errors import UnavailableError
from aquifer_manager.domain.batched_describes import BatchedBrokers
from aquifer_manager.domain.ports import LogQuery
from fixtures.manager_world import (
    Fault,
    SimulatedBroker,
    SimulatedBrokers,
    SimulatedLog,
    SteppedClock,
    partition,
    settle,
)

TIPS = [partition(number=number) for number in range(50)]


class Counted(SimulatedBroker):
    """A broker that remembers how many logs each call asked for, and may be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.gate: asyncio.Event | None = None

    async def describe_logs(self, queries: Sequence[LogQuery]) -> list[object]:  # type: ignore[override]
        self.sizes.append(len(queries))
        if self.gate is not None:
            await self.gate.wait()
        return list(await super().describe_logs(queries))


class Batches:
    """A broker with logs, asked through batches."""

    def __init__(self, max_logs: int = 500) -> None:
        self.clock = SteppedClock()
        self.broker = Counted()
        for tip in TIPS:
            self.broker.add(SimulatedLog(tip, log_end_offset=tip.partition))
        self.brokers = BatchedBrokers(
            SimulatedBrokers(leader=self.broker), clock=self.clock, max_logs=max_logs
        )
        self.expected: list[LogQuery] = []
        self.brokers.expect(lambda address: self.expected if address == "leader" else [])

    async def ask(self, number: int, *, from_offset: int = 0) -> int:
        """The log end offset that is answered."""
        query = LogQuery(topic_id_partition=TIPS[number], segments_from_offset=from_offset)
        (log,) = await self.brokers.logs_at("leader").describe_logs([query])
        assert log is not None
        assert log.topic_id_partition == TIPS[number]
        return log.log_end_offset


async def test_what_is_asked_at_once_goes_out_in_one_call() -> None:
    batches = Batches()
    assert await asyncio.gather(*map(batches.ask, range(50))) == list(range(50))
    assert batches.broker.sizes == [50]


async def test_what_is_asked_during_a_call_waits_for_the_next() -> None:
    batches = Batches(max_logs=20)
    batches.broker.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(batches.ask(0))
        await settle()
        others = [group.create_task(batches.ask(number)) for number in range(1, 50)]
        await settle()
        assert batches.broker.sizes == [1]
        batches.broker.gate.set()
    assert [each.result() for each in others] == list(range(1, 50))
    assert batches.broker.sizes == [1, 20, 20, 9]


async def test_what_is_expected_is_fetched_along_and_given_away_once() -> None:
    batches = Batches()
    batches.expected = [LogQuery(topic_id_partition=tip) for tip in TIPS]
    assert [await batches.ask(number) for number in range(50)] == list(range(50))
    assert batches.broker.sizes == [50]
    batches.expected = []
    await batches.ask(3)
    assert batches.broker.sizes == [50, 1]


async def test_an_answer_is_for_exactly_its_question_and_for_a_moment_only() -> None:
    batches = Batches()
    batches.expected = [LogQuery(topic_id_partition=tip) for tip in TIPS[:3]]
    await batches.ask(9)
    batches.expected = []
    # A copy has finished meanwhile: the next question begins behind it.
    await batches.ask(0, from_offset=100)
    assert batches.broker.sizes == [4, 1]
    await batches.clock.advance(0.9)
    await batches.ask(1)
    assert batches.broker.sizes == [4, 1]
    await batches.clock.advance(0.2)
    await batches.ask(2)
    assert batches.broker.sizes == [4, 1, 1]


async def test_a_change_forgets_what_was_fetched_ahead_also_while_it_is_on_its_way() -> None:
    """A rolled segment that a heartbeat names is seen by the very next run."""
    batches = Batches()
    batches.expected = [LogQuery(topic_id_partition=tip) for tip in TIPS[:3]]
    await batches.ask(9)
    batches.broker.logs[TIPS[0]].log_end_offset = 77
    batches.brokers.forget_answers(TIPS[0])
    batches.expected = []
    assert await batches.ask(0) == 77
    assert await batches.ask(1) == 1

    batches.expected = [LogQuery(topic_id_partition=TIPS[2])]
    batches.broker.gate = asyncio.Event()
    asked = asyncio.create_task(batches.ask(8))
    await settle()
    batches.brokers.forget_answers(TIPS[2])
    batches.broker.gate.set()
    await asked
    batches.expected = []
    before = len(batches.broker.sizes)
    await batches.ask(2)
    assert len(batches.broker.sizes) == before + 1


async def test_a_failure_reaches_everybody_who_waits_and_the_next_call_is_tried() -> None:
    batches = Batches()
    batches.broker.faults.inject("describe_logs", Fault(error=UnavailableError("gone")))
    answers = await asyncio.gather(*map(batches.ask, range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [UnavailableError] * 5
    assert await batches.ask(4) == 4


async def test_whoever_gives_up_leaves_the_others_their_answer() -> None:
    batches = Batches()
    batches.broker.gate = asyncio.Event()
    waiting = [asyncio.create_task(batches.ask(number)) for number in range(3)]
    await settle()
    waiting[0].cancel()
    await settle()
    batches.broker.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 2]


async def test_forgetting_a_broker_ends_its_questions() -> None:
    batches = Batches()
    batches.broker.gate = asyncio.Event()
    waiting = [asyncio.create_task(batches.ask(0))]
    await settle()
    waiting.append(asyncio.create_task(batches.ask(1)))
    await settle()
    await batches.brokers.forget("leader")
    for each in waiting:
        with pytest.raises(UnavailableError):
            await each


async def test_a_question_that_is_not_on_its_way_yet_ends_with_its_broker_as_well() -> None:
    batches = Batches()
    asked = [asyncio.create_task(batches.ask(number)) for number in range(2)]
    await asyncio.sleep(0)
    await batches.brokers.forget("leader")
    async with asyncio.timeout(60):
        results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in results] == [UnavailableError, UnavailableError]


async def test_many_questions_at_once_pass_through() -> None:
    batches = Batches()
    queries = [LogQuery(topic_id_partition=tip) for tip in TIPS]
    logs = await batches.brokers.logs_at("leader").describe_logs(queries)
    assert len(logs) == 50
    assert batches.broker.sizes == [50]
