"""Owns tasks that outlive the call which began them."""

import asyncio
from collections.abc import Callable, Coroutine


class TaskOwner:
    """Keeps tasks alive until they end, and ends what is left when it is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, work: Coroutine[None, None, None], if_cancelled: Callable[[], None] | None = None
    ) -> asyncio.Task[None]:
        """Begin work; it must not raise anything but cancellation.

        Args:
            work: what to do.
            if_cancelled: called when the work was cancelled, also when that was before it began: then none of it has run, not
                even its own handling of cancellation.
        """

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() and if_cancelled is not None:
                if_cancelled()

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
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
