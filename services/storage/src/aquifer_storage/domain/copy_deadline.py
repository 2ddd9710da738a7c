"""The longest that a copy may take, on which the ages of leftovers rest."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aquifer_core.errors import DeadlineExceededError


@asynccontextmanager
async def copy_deadline(timeout_s: float) -> AsyncIterator[None]:
    """Bounds a copy; no copy that took longer succeeds.

    The time is looked at once more at the end: a process that was stopped in the meantime may find its last answer and the end of
    its time together.

    Raises:
        DeadlineExceededError: the time is over.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    try:
        async with asyncio.timeout_at(end_s) as deadline:
            yield
    except TimeoutError as error:
        if deadline.expired():
            raise _overdue(timeout_s) from error
        raise
    if loop.time() > end_s:
        raise _overdue(timeout_s)


def _overdue(timeout_s: float) -> DeadlineExceededError:
    return DeadlineExceededError(f"the copy took over {timeout_s:g} s")
