"""Work on many things at once whose results come in the order of the things."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_order(
    things: AsyncIterator[T], work: Callable[[T], Coroutine[None, None, R]], at_once: int
) -> AsyncGenerator[R, None]:
    """Yield the result of the work on each thing; up to `at_once` are worked on, and no further thing is taken meanwhile.

    Close the generator: that ends what is under way. So does the first work that raises.
    """
    running: deque[asyncio.Task[R]] = deque()
    try:
        async for thing in things:
            running.append(asyncio.create_task(work(thing)))
            if len(running) == at_once:
                yield await running[0]
                running.popleft()
        while running:
            yield await running[0]
            running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
