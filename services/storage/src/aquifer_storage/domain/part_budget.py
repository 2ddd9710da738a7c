"""One budget of bytes for all parts in upload, and the buffers that it pays for."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aquifer_core.errors import InvalidConfigurationError

_SPARE_S: Final = 5.0


class PartBuffer:
    """A part that is being filled or uploaded."""

    __slots__ = ("_buffer", "filled_bytes")

    def __init__(self, memory: bytearray) -> None:
        self._buffer = memory
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

    def take_memory(self) -> bytearray:
        """Return what it was made of, which is another buffer's from now on."""
        memory, self._buffer = self._buffer, bytearray()
        return memory

    def fill(self, data: memoryview) -> int:
        """Copy as much as there is room for; returns how much that was."""
        taken = min(len(data), len(self._buffer) - self.filled_bytes)
        end = self.filled_bytes + taken
        self._buffer[self.filled_bytes : end] = data[:taken]
        self.filled_bytes = end
        return taken


class PartBudget:
    """Hands out buffers up to a number of bytes; who finds none waits its turn.

    Memory of buffers given back is used again while copies go on and for some seconds after: fresh memory costs a third of the
    processor time of a copy. With what is in use it stays inside the budget.
    """

    def __init__(
        self,
        capacity_bytes: int,
        reservable_bytes: int = 0,
        holdable_bytes: int = 0,
        *,
        spare_s: float = _SPARE_S,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._reservable_bytes = reservable_bytes
        self._most_held_bytes = self._holdable_bytes = holdable_bytes
        self._entering: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._spare: list[bytearray] = []
        self._spare_s = spare_s
        self._spare_ends: asyncio.TimerHandle | None = None

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
        try:
            return PartBuffer(self._memory(size_bytes))
        except MemoryError:
            self.used_bytes -= size_bytes
            self._serve()
            raise

    def release(self, buffer: PartBuffer) -> None:
        """Give a buffer back; it must not be used any more."""
        self.used_bytes -= buffer.size_bytes
        self._spare.append(buffer.take_memory())
        self._note_idle()
        self._serve()

    @property
    def spare_bytes(self) -> int:
        """Memory that is kept for buffers to come."""
        return sum(map(len, self._spare))

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Count what work keeps beside its buffers for the time of the context; waits until there is room and nobody waits for a buffer.

        No more than `holdable_bytes` in all, for the same reason as with `try_reserve`. Work that needs more than that is counted with
        so much, and so is alone.
        """
        counted_bytes = min(size_bytes, self._most_held_bytes)
        if self._entering or not self._may_hold(counted_bytes):
            await self._wait_to_hold(counted_bytes)
        else:
            self._take_hold(counted_bytes)
        try:
            yield
        finally:
            self._end_hold(counted_bytes)

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
        self._fit_spare()
        return True

    def give_back(self, size_bytes: int) -> None:
        """End what `try_reserve` began."""
        self._reservable_bytes += size_bytes
        self.used_bytes -= size_bytes
        self._serve()

    def _may_hold(self, size_bytes: int) -> bool:
        if self._waiting or size_bytes > self._holdable_bytes:
            return False
        return self.used_bytes + size_bytes <= self.capacity_bytes

    def _take_hold(self, size_bytes: int) -> None:
        self._holdable_bytes -= size_bytes
        self.used_bytes += size_bytes
        self._fit_spare()

    def _end_hold(self, size_bytes: int) -> None:
        self._holdable_bytes += size_bytes
        self.used_bytes -= size_bytes
        self._note_idle()
        self._serve()

    async def _wait_to_hold(self, size_bytes: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._entering.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end_hold(size_bytes)
            else:
                with suppress(ValueError):  # somebody who gave back was here before and left it out
                    self._entering.remove(entry)
                self._serve()
            raise

    def _note_idle(self) -> None:
        if not self.used_bytes and self._spare_ends is None:
            loop = asyncio.get_running_loop()
            self._spare_ends = loop.call_later(self._spare_s, self._drop_spare)

    def _memory(self, size_bytes: int) -> bytearray:
        for number, spare in enumerate(self._spare):
            if len(spare) == size_bytes:
                del self._spare[number]
                self._fit_spare()
                return spare
        self._spare.clear()  # of other sizes than what is wanted now
        return bytearray(size_bytes)

    def _fit_spare(self) -> None:
        while self._spare and self.used_bytes + self.spare_bytes > self.capacity_bytes:
            del self._spare[0]

    def _drop_spare(self) -> None:
        self._spare_ends = None
        if not self.used_bytes:
            self._spare.clear()

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
                with suppress(ValueError):  # somebody who gave back was here before and left it out
                    self._waiting.remove(entry)
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self.capacity_bytes:
            size_bytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.used_bytes += size_bytes
                turn.set_result(None)
        while self._entering and self._may_hold(self._entering[0][0]):
            size_bytes, turn = self._entering.popleft()
            if not turn.cancelled():
                self._take_hold(size_bytes)
                turn.set_result(None)
