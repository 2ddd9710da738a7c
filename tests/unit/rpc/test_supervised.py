import asyncio
import contextlib
from collections.abc import Callable

import pytest
import structlog
from aquifer_rpc.request_context import REQUEST_ID
from aquifer_rpc.supervised import SupervisedLoop
from fixtures.polling import eventually


class Body:
    """Counts its runs and does in each what it is told."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.runs = 0
        self._actions = list(actions)

    async def __call__(self) -> None:
        self.runs += 1
        if self._actions:
            self._actions.pop(0)()


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


async def test_the_body_runs_again_and_again() -> None:
    body = Body()
    async with SupervisedLoop("t", body, interval_s=0.001):
        await eventually(lambda: body.runs >= 3)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), MemoryError(), TimeoutError(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_any_failure_is_survived_and_logged(error: BaseException) -> None:
    body = Body(raising(error), raising(error))
    with structlog.testing.capture_logs() as logs:
        async with SupervisedLoop("t", body, interval_s=60, backoff_min_s=0.001) as loop:
            await eventually(lambda: body.runs == 3)
            await eventually(lambda: loop.failures_in_a_row == 0)

    assert [line["event"] for line in logs] == ["loop_failed", "loop_failed", "loop_recovered"]


async def test_after_a_failure_the_pause_doubles_up_to_its_longest() -> None:
    body = Body(*[raising(ValueError())] * 5)
    with structlog.testing.capture_logs() as logs:
        async with SupervisedLoop("t", body, interval_s=60, backoff_min_s=0.01, backoff_max_s=0.04):
            await eventually(lambda: body.runs == 6)

    pauses = [line["retry_in_s"] for line in logs if line["event"] == "loop_failed"]
    assert len(pauses) == 5
    for pause, longest in zip(pauses, [0.01, 0.02, 0.04, 0.04, 0.04], strict=True):
        assert longest / 2 - 0.001 <= pause <= longest + 0.001


async def test_wake_ends_the_pause() -> None:
    body = Body()
    async with SupervisedLoop("t", body, interval_s=3600) as loop:
        await eventually(lambda: body.runs == 1)
        loop.wake()
        await eventually(lambda: body.runs == 2)


async def test_a_wake_during_a_run_brings_another_run() -> None:
    body: Body

    def wake() -> None:
        loop.wake()

    body = Body(wake)
    loop = SupervisedLoop("t", body, interval_s=3600)
    async with loop:
        await eventually(lambda: body.runs == 2)


async def test_a_run_past_its_deadline_counts_as_failed() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with structlog.testing.capture_logs() as logs:
        async with SupervisedLoop("t", hang, interval_s=0, run_deadline_s=0.01) as loop:
            await eventually(lambda: loop.failures_in_a_row >= 1)
    assert logs[0]["error"].startswith("a run took over 0.01 s while in ")
    assert logs[0]["exc_info"] is None


async def test_the_age_of_the_last_success_grows_while_runs_fail() -> None:
    body = Body(lambda: None, *[raising(ValueError())] * 1000)
    async with SupervisedLoop(
        "t", body, interval_s=0, backoff_min_s=0.001, backoff_max_s=0.001
    ) as loop:
        await eventually(lambda: loop.failures_in_a_row > 3)
        before_s = loop.seconds_since_success()
        await eventually(lambda: loop.failures_in_a_row > 6)
        assert loop.seconds_since_success() > before_s > 0


async def test_leaving_cancels_a_run_and_waits_for_it() -> None:
    cleaned = False
    begun = asyncio.Event()

    async def hang() -> None:
        nonlocal cleaned
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    async with SupervisedLoop("t", hang, interval_s=0), asyncio.timeout(60):
        await begun.wait()

    assert cleaned


async def test_a_body_that_swallows_its_cancellation_ends_with_its_run() -> None:
    begun = asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with asyncio.timeout(60):
        async with SupervisedLoop("t", stubborn, interval_s=0):
            await begun.wait()


async def test_a_loop_does_not_inherit_the_request_that_started_it() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(REQUEST_ID.get())

    token = REQUEST_ID.set("request-7")
    try:
        async with SupervisedLoop("t", look, interval_s=60):
            await eventually(lambda: seen)
    finally:
        REQUEST_ID.reset(token)

    assert seen == [""]
