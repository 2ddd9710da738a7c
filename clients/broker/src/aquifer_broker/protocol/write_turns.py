"""Large answers leave in slices, one in each pass of the event loop, whoever they are for."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

__all__ = ["WriteTurns", "slices_of"]

Buffer = bytes | bytearray | memoryview


class WriteTurns:
    """Who takes a turn may write once; the next turn is given in the next pass of the event loop, in order of asking.

    Between two turns the loop looks at its sockets, so a small request waits for one slice and not for the answers of all readers.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def next(self) -> None:
        """Waits for a turn; at once when nobody else has had one in this pass."""
        loop = asyncio.get_running_loop()
        if self._taken:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        self._taken = True
        loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            # Whoever was cancelled meanwhile has no use for it.
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._taken = False


def slices_of(buffers: Sequence[Buffer], max_bytes: int) -> Iterator[list[Buffer]]:
    """Cuts buffers into slices of at most so many bytes together, in order and without copying."""
    taken: list[Buffer] = []
    left = max_bytes
    for buffer in buffers:
        rest: Buffer = buffer
        while len(rest) > left:
            view = memoryview(rest)
            if left:
                taken.append(view[:left])
            yield taken
            rest, taken, left = view[left:], [], max_bytes
        taken.append(rest)
        left -= len(rest)
    if taken:
        yield taken
