"""A bounded number of remote reads at once, a bounded number waiting, the rest refused at once (SR-8, SR-9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aquifer_core.errors import ErrorReason, QuotaExceededError

__all__ = ["ReaderPool"]

_RETRY_AFTER_MS: Final = 100


class ReaderPool:
    """`remote.log.reader.threads` readers with a queue of `remote.log.reader.max.pending.tasks`."""

    def __init__(self, *, readers: int, max_pending: int) -> None:
        self._slots = asyncio.Semaphore(readers)
        self._max_pending = max_pending
        self.active = 0
        self.pending = 0
        self.refused = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Holds a reader for the block, after waiting for a free one in order of arrival.

        Raises:
            QuotaExceededError: too many are waiting (READER_QUEUE_FULL).
        """
        if self._slots.locked() and self.pending >= self._max_pending:
            self.refused += 1
            raise QuotaExceededError(
                f"{self.active} remote reads are under way and {self.pending} are waiting",
                reason=ErrorReason.READER_QUEUE_FULL,
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self.pending += 1
        try:
            await self._slots.acquire()
        finally:
            self.pending -= 1
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self._slots.release()
