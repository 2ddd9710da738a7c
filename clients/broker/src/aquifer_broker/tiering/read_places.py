"""Places for remote reads that may be under way at once, given to readers in turn."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["Place", "ReadPlaces"]

_LINGER_S: Final = 0.02


class Place:
    """What a read has while it is under way and while its reader takes what it brought.

    Who reads a large piece and hands it out in parts keeps readers from working all at once only if the place is held until the last part
    is out. A reader that does not come for the next part for 20 ms has other things to do, and somebody else gets the place.
    """

    __slots__ = ("_expiry", "_last_taken_s", "_places", "held", "reader")

    def __init__(self, places: "ReadPlaces", reader: Hashable) -> None:
        self.reader = reader
        self.held = False
        self._places = places
        self._expiry: asyncio.TimerHandle | None = None
        self._last_taken_s = 0.0

    async def take(self) -> None:
        """Waits for the turn of the reader. Cancelled, it leaves nothing behind."""
        await self._places.admit(self)

    def taken_from(self) -> None:
        """Some of what was read was just handed out, or has just come: the place is held a little longer."""
        if not self.held:
            return
        self._last_taken_s = asyncio.get_running_loop().time()
        if self._expiry is None:
            self._expire_at(self._last_taken_s + self._places.linger_s)

    def give_back(self) -> None:
        """Ends holding the place; idempotent."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.held:
            self.held = False
            self._places.used -= 1
            self._places.let_in()

    def _expire_at(self, at_s: float) -> None:
        self._expiry = asyncio.get_running_loop().call_at(at_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        until_s = self._last_taken_s + self._places.linger_s
        if until_s > asyncio.get_running_loop().time():
            self._expire_at(until_s)
        else:
            self.give_back()


class ReadPlaces:
    """As many places as the limit says now; waiting readers take turns, reads of one reader come in order of asking.

    A limit that was lowered takes no place away.

    Attributes:
        used: Places that are held.
        most_used: The most that were held since `reset_most_used`.
    """

    def __init__(
        self,
        limit: Callable[[], float] = lambda: float("inf"),
        *,
        on_used: Callable[[], None] = lambda: None,
        linger_s: float = _LINGER_S,
    ) -> None:
        """Prepares.

        Args:
            limit: Places there are now, at least 1.
            on_used: Called whenever a place is taken.
            linger_s: How long a place is held for a reader that does not come.
        """
        self.linger_s = linger_s
        self.used = 0
        self.most_used = 0
        self._limit = limit
        self._on_used = on_used
        self._waiting: OrderedDict[Hashable, deque[tuple[Place, asyncio.Future[None]]]] = (
            OrderedDict()
        )

    @property
    def waiting(self) -> int:
        """Reads that wait for a place."""
        return sum(map(len, self._waiting.values()))

    def place(self, reader: Hashable) -> Place:
        """A place to be taken, once."""
        return Place(self, reader)

    def reset_most_used(self) -> None:
        """Begins to look anew for the most."""
        self.most_used = self.used

    async def admit(self, place: Place) -> None:
        """See `Place.take`."""
        if not self._waiting and self.used < self._limit():
            self._hold(place)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place.reader, deque()).append((place, turn))
        try:
            await turn
        except BaseException:
            # The turn may have been given just before the waiter was cancelled.
            self._leave(place, turn)
            place.give_back()
            raise

    def let_in(self) -> None:
        """A place was given back, or the limit may have been raised: whose turn it is goes on."""
        while self._waiting and self.used < self._limit():
            reader, turns = self._waiting.popitem(last=False)
            place, turn = turns.popleft()
            if turns:
                self._waiting[reader] = turns
            if not turn.done():
                self._hold(place)
                turn.set_result(None)

    def _leave(self, place: Place, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(place.reader)
        if turns is not None and (place, turn) in turns:
            turns.remove((place, turn))
            if not turns:
                del self._waiting[place.reader]

    def _hold(self, place: Place) -> None:
        place.held = True
        self.used += 1
        self.most_used = max(self.most_used, self.used)
        self._on_used()
