"""Who waits for a log to move; costs nothing while nobody does."""

import asyncio
from collections.abc import Callable

__all__ = ["LogWaiters"]


class LogWaiters:
    """Callbacks to run after every move of a log's offsets."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Adds a callback; the result removes it again and may be called more than once."""
        key = id(entry := [callback])
        self._callbacks[key] = callback

        def unsubscribe() -> None:
            entry.clear()
            self._callbacks.pop(key, None)

        return unsubscribe

    def wake(self) -> None:
        """Runs every callback."""
        if self._callbacks:
            for callback in tuple(self._callbacks.values()):
                callback()

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Returns once a condition on the log holds; it is looked at after every move."""
        if reached():
            return
        event = asyncio.Event()
        unsubscribe = self.subscribe(event.set)
        try:
            while not reached():
                event.clear()
                await event.wait()
        finally:
            unsubscribe()
