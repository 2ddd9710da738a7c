"""Separate limits for the kinds of work, so that none starves another; they may change at any time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_BURST_S: Final = 1.0


class Work(StrEnum):
    """What requests to the store are made for."""

    COPY = "copy"
    FETCH = "fetch"
    VERIFY = "verify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimit:
    """Limit of one kind of work in one process.

    Attributes:
        bytes_per_s: bytes of objects sent and received; none: no limit. Up to one second's worth may come at once.
        concurrency: requests to the store under way at once; none: no limit.
    """

    bytes_per_s: int | None = None
    concurrency: int | None = None


UNLIMITED: Final = WorkLimit()


class WorkLimits:
    """The limits of a process, one for each kind of work."""

    def __init__(self) -> None:
        self._gates = {work: WorkGate() for work in Work}

    def of(self, work: Work) -> "WorkGate":
        """Return the gate of a kind of work."""
        return self._gates[work]

    def apply(self, limits: Mapping[Work, WorkLimit]) -> None:
        """Change the limits now, also for what waits already; kinds that are not given have none."""
        for work, gate in self._gates.items():
            gate.change(limits.get(work, UNLIMITED))


class WorkGate:
    """Lets requests of one kind of work through."""

    def __init__(self) -> None:
        self.limit = UNLIMITED
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._bytes = _ByteRate()

    def change(self, limit: WorkLimit) -> None:
        """Change the limit."""
        self.limit = limit
        self._bytes.change(limit.bytes_per_s)
        self._let_in()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Hold one of the places for requests; waits for it, first come first served."""
        await self._enter()
        try:
            yield
        finally:
            self._in_use -= 1
            self._let_in()

    async def pay(self, size_bytes: int) -> None:
        """Wait until the rate allows bytes; before they are sent or received, or afterwards where nobody knows how many there are."""
        await self._bytes.pay(size_bytes)

    async def _enter(self) -> None:
        if not self._waiting and self._is_free:
            self._in_use += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not place.cancelled():
                self._in_use -= 1
                self._let_in()
            raise

    @property
    def _is_free(self) -> bool:
        most = self.limit.concurrency
        return most is None or self._in_use < most

    def _let_in(self) -> None:
        while self._waiting and self._is_free:
            place = self._waiting.popleft()
            if not place.done():
                self._in_use += 1
                place.set_result(None)


class _ByteRate:
    """Credit that grows with time; whoever pays goes in turn, when what was paid before is covered by it.

    Who gives up while it waits has paid nothing: else attempts that are not patient enough would put off all that follow, for ever.
    """

    def __init__(self) -> None:
        self._rate: float | None = None
        self._credit = 0.0
        self._counted_s = 0.0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    def change(self, rate: int | None) -> None:
        self._count()
        self._rate = rate
        self._changed.set()
        self._changed = asyncio.Event()

    async def pay(self, size_bytes: int) -> None:
        async with self._turn:
            self._count()
            while self._rate is not None and self._credit < 0:
                try:
                    async with asyncio.timeout(-self._credit / self._rate):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._count()
            self._credit -= size_bytes

    def _count(self) -> None:
        """Bring the credit up to now; at most a second's worth is kept."""
        now_s = asyncio.get_running_loop().time()
        if self._rate is None:
            self._credit = 0.0
        else:
            earned = self._credit + self._rate * (now_s - self._counted_s)
            self._credit = min(earned, self._rate * _BURST_S)
        self._counted_s = now_s
