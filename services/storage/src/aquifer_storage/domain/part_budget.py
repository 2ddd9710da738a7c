"""One budget of bytes for all parts in upload, and the buffers that it pays for."""

import asyncio
from collections import deque

from aquifer_core.errors import InvalidConfigurationError


class PartBuffer:
    """A part that is being filled or uploaded."""

    __slots__ = ("_buffer", "filled_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._buffer = bytearray(size_bytes)
        self.filled_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Room, filled or not."""
        return len(self._buffer)

    @property
    def is_full(self) -> bool:
        """Whether no room is left."""
        return self.filled_bytes == len(self._buffer)

    @property
    def data(self) -> memoryview:
        """What has been filled in."""
        return memoryview(self._buffer)[: self.filled_bytes]

    def fill(self, data: memoryview) -> int:
        """Copy as much as there is room for; returns how much that was."""
        taken = min(len(data), len(self._buffer) - self.filled_bytes)
        end = self.filled_bytes + taken
        self._buffer[self.filled_bytes : end] = data[:taken]
        self.filled_bytes = end
        return taken


class PartBudget:
    """Hands out buffers up to a number of bytes; who finds none waits its turn."""

    def __init__(self, capacity_bytes: int, reservable_bytes: int = 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._reservable_bytes = reservable_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, size_bytes: int) -> PartBuffer:
        """Return an empty buffer, as soon as the budget has room and everybody before was served.

        Raises:
            InvalidConfigurationError: the budget is smaller than that.
        """
        if size_bytes > self.capacity_bytes:
            raise InvalidConfigurationError(
                f"a part of {size_bytes} bytes does not fit into the upload budget of {self.capacity_bytes}"
            )
        if self._waiting or self.used_bytes + size_bytes > self.capacity_bytes:
            await self._wait(size_bytes)
        else:
            self.used_bytes += size_bytes
        return PartBuffer(size_bytes)

    def release(self, buffer: PartBuffer) -> None:
        """Give a buffer back; it must not be used any more."""
        self.used_bytes -= buffer.size_bytes
        self._serve()

    def try_reserve(self, size_bytes: int) -> bool:
        """Take bytes out of the budget for work beside the buffers, if that is possible at once.

        No more than `reservable_bytes` in all: whoever holds them may wait for a buffer, so the rest must suffice for one.
        """
        if self._waiting or size_bytes > self._reservable_bytes:
            return False
        if self.used_bytes + size_bytes > self.capacity_bytes:
            return False
        self._reservable_bytes -= size_bytes
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """End what `try_reserve` began."""
        self._reservable_bytes += size_bytes
        self.used_bytes -= size_bytes
        self._serve()

    async def _wait(self, size_bytes: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used_bytes -= size_bytes
            else:
                self._waiting.remove(entry)
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self.capacity_bytes:
            size_bytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.used_bytes += size_bytes
                turn.set_result(None)
