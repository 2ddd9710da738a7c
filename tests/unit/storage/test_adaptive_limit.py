"""Requests that a store refuses become fewer, and more again when it takes them (T48)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aquifer_core.errors import RemoteResourceNotFoundError, RemoteStorageUnavailableError
from aquifer_storage.adapters.adaptive_limit import AdaptiveLimit
from aquifer_storage.adapters.s3_retries import Retries

SLOW_DOWN = RemoteStorageUnavailableError("SlowDown")
PATIENCE_S = 20.0


class QuickClock:
    """A clock whose time passes only in its sleeps, which take none."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def limit(clock: QuickClock) -> AsyncIterator[AdaptiveLimit]:
    limit = AdaptiveLimit("s3", "get", most=16, patience_s=PATIENCE_S, clock=clock)
    yield limit
    await limit.close()


async def request(limit: AdaptiveLimit, error: Exception | None = None) -> None:
    """A request that ends so."""
    async with limit.slot():
        if error is not None:
            raise error


async def refuse(limit: AdaptiveLimit, clock: QuickClock) -> None:
    """A request that is refused, later than the one before."""
    clock.now_s += 1
    with pytest.raises(RemoteStorageUnavailableError):
        await request(limit, SLOW_DOWN)


async def test_a_refusal_halves_and_successes_add_one_a_round(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    await refuse(limit, clock)
    await refuse(limit, clock)
    assert limit.value == 4
    for _ in range(4):
        await request(limit)
    assert 4.8 < limit.value < 5.1
    for _ in range(200):
        await request(limit)
    assert limit.value == 16


async def test_refusals_of_requests_under_way_together_count_once(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    refused = asyncio.Event()

    async def waits() -> None:
        async with limit.slot():
            await refused.wait()
            clock.now_s += 1
            raise SLOW_DOWN

    tasks = [asyncio.create_task(waits()) for _ in range(16)]
    await asyncio.sleep(0)
    refused.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes == [SLOW_DOWN] * 16
    assert limit.value == 8


async def test_an_answer_that_something_is_not_there_is_an_answer(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    await refuse(limit, clock)
    with pytest.raises(RemoteResourceNotFoundError):
        await request(limit, RemoteResourceNotFoundError("no"))
    assert limit.value > 8


async def test_no_more_than_the_limit_are_under_way(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    for _ in range(3):
        await refuse(limit, clock)
    under_way, most = 0, 0

    async def counted() -> None:
        nonlocal under_way, most
        async with limit.slot():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    assert limit.value == 2
    await asyncio.gather(*(counted() for _ in range(2)))
    assert most == 2
    await asyncio.gather(*(counted() for _ in range(100)))
    assert 2 < most <= 16


async def test_who_is_cancelled_while_waiting_takes_no_place(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    for _ in range(4):
        await refuse(limit, clock)
    assert limit.value == 1
    async with limit.slot():
        waiting = asyncio.create_task(request(limit))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(60):
        await request(limit)


async def test_minutes_of_nothing_but_refusals_are_survived_with_few_requests(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    """T48: five minutes of 503 for 50 callers: each is told in time, none waits for ever, the store is asked seldom, and then all is well."""
    asked = 0
    is_busy = True

    async def call() -> int:
        nonlocal asked
        retries = Retries(PATIENCE_S, clock)
        while True:
            try:
                async with limit.slot():
                    asked += 1
                    if is_busy:
                        raise SLOW_DOWN
                return retries.attempt
            except RemoteStorageUnavailableError as error:
                await retries.pause(error)

    rounds = 0
    while clock.now_s < 300:
        outcomes = await asyncio.gather(*(call() for _ in range(50)), return_exceptions=True)
        assert all(isinstance(outcome, RemoteStorageUnavailableError) for outcome in outcomes)
        rounds += 1
    assert rounds < 50
    assert asked / clock.now_s < 2
    is_busy = False
    assert await asyncio.gather(*(call() for _ in range(200))) == [1] * 200
    assert limit.value > 10


async def test_behind_a_store_that_makes_progress_one_waits_on(
    limit: AdaptiveLimit, clock: QuickClock
) -> None:
    for _ in range(8):
        await refuse(limit, clock)
    waiting = [asyncio.create_task(request(limit)) for _ in range(3)]
    clock.now_s += PATIENCE_S / 2
    await asyncio.gather(*waiting)


async def test_closing_tells_who_waits(limit: AdaptiveLimit, clock: QuickClock) -> None:
    for _ in range(4):
        await refuse(limit, clock)
    async with limit.slot():
        waiting = asyncio.create_task(request(limit))
        await asyncio.sleep(0)
        await limit.close()
        with pytest.raises(RemoteStorageUnavailableError, match="closed"):
            await waiting
