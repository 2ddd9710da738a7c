"""Writes of a group's offsets wait for each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

__all__ = ["OffsetTurns"]

_WAIT_S: Final = 5.0


class OffsetTurns:
    """One writer of a group's offsets at a time, in order of asking.

    A write that hangs, or is repeated below, would otherwise land on one that was admitted after it, and take a group back.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, group_id: str) -> AsyncIterator[None]:
        """Waits for those before.

        Raises:
            TimeoutError: they took longer than a call may take.
        """
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = asyncio.Lock()
        async with asyncio.timeout(_WAIT_S):
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()
