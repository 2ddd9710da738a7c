"""Owns tasks that outlive the call which began them."""

import asyncio
from collections.abc import Coroutine


class TaskOwner:
    """Keeps tasks alive until they end, and ends what is left when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin work; it must not raise anything but cancellation."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel what is left and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def drain(self) -> None:
        """Wait for what is left without cancelling it."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
