"""Byte budgets shared by all connections: over budget means wait or take less, never grow."""

from collections import deque
from collections.abc import Callable

__all__ = ["RequestBudget", "ResponseBudget"]


class RequestBudget:
    """Bytes of requests that are being received or processed (Kafka's `queued.max.request.bytes`).

    A grant always covers a whole request, so what was admitted can finish; a request larger than the
    budget is admitted when nothing else is. Waiters are served in order of arrival.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.used_bytes = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether there are waiters."""
        return bool(self._waiting)

    def take(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Takes the bytes now and returns True, or returns False and calls `granted` once they were taken."""
        if not self._waiting and self._fits(size_bytes):
            self.used_bytes += size_bytes
            return True
        self._waiting.append((size_bytes, granted))
        return False

    def release(self, size_bytes: int) -> None:
        """Gives bytes back and serves waiters."""
        self.used_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][0]):
            waiting_bytes, granted = self._waiting.popleft()
            self.used_bytes += waiting_bytes
            granted()

    def abandon(self, granted: Callable[[], None]) -> None:
        """Forgets a waiter whose connection went away."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._limit_bytes


class ResponseBudget:
    """Bytes of fetched records held for clients that have not read them yet.

    Never blocks: when little is left a fetch gets less, down to `floor_bytes`, so that a slow consumer
    cannot stop the others and memory stays below limit + floor * connections (one batch may exceed it). Records count from when they
    were read.
    """

    def __init__(self, limit_bytes: int, floor_bytes: int = 64 * 1024) -> None:
        self._limit_bytes = limit_bytes
        self._floor_bytes = floor_bytes
        self.used_bytes = 0

    def grant(self, wanted_bytes: int, held_bytes: int = 0) -> int:
        """How many of the wanted bytes a fetch may read now that holds some already."""
        floor_bytes = max(0, self._floor_bytes - held_bytes)
        return min(wanted_bytes, max(floor_bytes, self._limit_bytes - self.used_bytes))

    def hold(self, size_bytes: int) -> None:
        """Counts bytes that are on their way to a client."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Counts bytes that left."""
        self.used_bytes -= size_bytes
