"""Two things at the same time, and the error of either as it is."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

__all__ = ["together"]

A = TypeVar("A")
B = TypeVar("B")


async def together(aside: Coroutine[None, None, A], here: Awaitable[B]) -> tuple[A, B]:
    """Awaits `here` in this task and `aside` in another one; when one fails the other is cancelled.

    An asynchronous generator that holds context variables must be advanced by one task, so advance it in `here`.

    Raises:
        Exception: what failed first.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(aside)
            result = await here
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return task.result(), result
