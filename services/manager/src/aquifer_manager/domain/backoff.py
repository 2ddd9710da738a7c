"""Exponential back-off with jitter."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    DeadlineExceededError,
    UnavailableError,
)
from aquifer_core.ports import Clock

__all__ = ["RETRIABLE", "Backoff", "retry_until"]

RETRIABLE: Final = (UnavailableError, DeadlineExceededError, ConcurrentUpdateError)
"""What may succeed when tried again; after the first two the operation may have happened."""

_MAX_EXPONENT: Final = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that start at `initial_ms` and double up to `max_ms`, each off by at most the share `jitter`."""

    initial_ms: int
    max_ms: int
    jitter: float = 0.2

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, from 1."""
        exponent = min(max(failures - 1, 0), _MAX_EXPONENT)
        delay_ms = min(self.initial_ms << exponent, self.max_ms)
        spread = random.uniform(1 - self.jitter, 1 + self.jitter)
        return delay_ms * spread / 1000


async def retry_until(
    operation: Callable[[], Awaitable[T]],
    *,
    backoff: Backoff,
    deadline_s: float,
    clock: Clock,
    on_failure: Callable[[AquiferError], None] = lambda _: None,
) -> T:
    """Repeats an idempotent operation while it fails with something `RETRIABLE` and the deadline leaves room for the pause.

    Args:
        operation: awaited again from the start each time.
        backoff: pauses between attempts.
        deadline_s: on the clock's monotonic scale.
        clock: measures and waits.
        on_failure: told of every failure that is retried.

    Raises:
        AquiferError: the last failure.
    """
    failures = 0
    while True:
        try:
            return await operation()
        except RETRIABLE as error:
            failures += 1
            pause_s = backoff.delay_s(failures)
            if error.retry_after_ms is not None:
                pause_s = max(pause_s, error.retry_after_ms / 1000)
            if clock.monotonic_s() + pause_s >= deadline_s:
                raise
            on_failure(error)
        await clock.sleep(pause_s)
