"""Periodic work that nothing stops: runs, survives, backs off, and says since when it has not succeeded."""

import asyncio
import contextvars
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Self

import structlog
from aquifer_core.errors import AquiferError, DeadlineExceededError
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from aquifer_rpc import semconv
from aquifer_rpc.where import innermost_frame

logger = structlog.get_logger(__name__)

_LOOPS: Final["weakref.WeakSet[SupervisedLoop]"] = weakref.WeakSet()


def _observe(_options: CallbackOptions) -> Iterable[Observation]:
    return [
        Observation(loop.seconds_since_success(), {semconv.LOOP.key: loop.name})
        for loop in list(_LOOPS)
    ]


_METER: Final = metrics.get_meter("aquifer_rpc")
_METER.create_observable_gauge(
    semconv.LOOP_SECONDS_SINCE_SUCCESS.name,
    callbacks=[_observe],
    unit=semconv.LOOP_SECONDS_SINCE_SUCCESS.unit,
    description=semconv.LOOP_SECONDS_SINCE_SUCCESS.doc,
)
_FAILURES: Final = _METER.create_counter(
    semconv.LOOP_FAILURES.name,
    unit=semconv.LOOP_FAILURES.unit,
    description=semconv.LOOP_FAILURES.doc,
)


class SupervisedLoop:
    """Runs `body` again and again while the context is open.

    After a success the next run comes `interval_s` later; after a failure the pause starts at `backoff_min_s`, doubles up to
    `backoff_max_s`, and is jittered between half and all of it. The loop begins in an empty context: it has no request id, span
    or deadline of whoever started it. Leaving the context cancels the run under way and waits for it.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], Awaitable[object]],
        *,
        interval_s: float,
        backoff_min_s: float = 0.1,
        backoff_max_s: float = 30.0,
        run_deadline_s: float | None = None,
    ) -> None:
        """Prepares the loop; nothing runs yet.

        Args:
            name: for logs and the metric.
            body: one run; its result does not matter.
            interval_s: pause between successful runs.
            backoff_min_s: pause after the first failure.
            backoff_max_s: longest pause after failures.
            run_deadline_s: a run that takes longer is cancelled and counts as failed; None: no limit.
        """
        self.name = name
        self.failures_in_a_row = 0
        self._body = body
        self._interval_s = interval_s
        self._backoff_min_s = backoff_min_s
        self._backoff_max_s = backoff_max_s
        self._run_deadline_s = run_deadline_s
        self._wake = asyncio.Event()
        self._last_success_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._leaving = False

    async def __aenter__(self) -> Self:
        self._last_success_s = time.monotonic()
        _LOOPS.add(self)
        self._task = asyncio.create_task(
            self._run(), name=f"loop {self.name}", context=contextvars.Context()
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _LOOPS.discard(self)
        self._leaving = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def wake(self) -> None:
        """Makes the next run come now; during a run, right after it. Cancels a back-off as well."""
        self._wake.set()

    def seconds_since_success(self) -> float:
        """Age of the last success, or time since the start when there was none."""
        return time.monotonic() - self._last_success_s

    async def _run(self) -> None:
        # A body that swallows its cancellation must not keep the loop alive.
        while not self._leaving:
            self._wake.clear()
            pause_s = await self._run_once()
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _run_once(self) -> float:
        """Runs the body and returns the pause that follows."""
        deadline = asyncio.timeout(self._run_deadline_s)
        try:
            async with deadline:
                await self._body()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() > 0:
                raise
            return self._failed(error)
        except Exception as error:
            overdue = deadline.expired() and isinstance(error, TimeoutError)
            return self._failed(self._overdue(error) if overdue else error)
        self._last_success_s = time.monotonic()
        if self.failures_in_a_row:
            logger.info("loop_recovered", loop=self.name, failures=self.failures_in_a_row)
        self.failures_in_a_row = 0
        return self._interval_s

    def _overdue(self, error: Exception) -> DeadlineExceededError:
        # The frames of the cancelled run are those of the cause.
        where = innermost_frame(error.__cause__ or error)
        return DeadlineExceededError(f"a run took over {self._run_deadline_s:g} s while in {where}")

    def _failed(self, error: BaseException) -> float:
        exponent = min(self.failures_in_a_row, 32)
        self.failures_in_a_row += 1
        longest_s = min(self._backoff_max_s, self._backoff_min_s * 2.0**exponent)
        pause_s = longest_s * random.uniform(0.5, 1.0)
        _FAILURES.add(1, {semconv.LOOP.key: self.name})
        logger.warning(
            "loop_failed",
            loop=self.name,
            failures=self.failures_in_a_row,
            retry_in_s=round(pause_s, 3),
            since_success_s=round(self.seconds_since_success(), 3),
            error=str(error),
            # Where an error comes from that was foreseen says nothing; one outcome is one line.
            exc_info=None if isinstance(error, AquiferError) else error,
        )
        return pause_s
