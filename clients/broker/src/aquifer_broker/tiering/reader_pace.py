"""How much a sequential reader of the cold part is read at once."""

from collections import OrderedDict
from typing import Final, NamedTuple

from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import IsolationLevel

__all__ = ["ReaderPace", "ReaderPlace"]

_MAX_READERS: Final = 10_000
_GROWTH: Final = 4
_QUICK_S: Final = 1.0
_SLOW_S: Final = 4.0


class ReaderPlace(NamedTuple):
    """Where a reader will go on."""

    topic_id_partition: TopicIdPartition
    isolation: IsolationLevel
    offset: int


class ReaderPace:
    """Knows readers by the offset that they will ask for next.

    Every read that a reader goes on from makes the next one four times as large, while they are quick; reads that a slow store needs
    long for stay as small as the consumer asks for, so that each is done within its time.
    """

    def __init__(self, max_window_bytes: int) -> None:
        self._max_window_bytes = max_window_bytes
        self._windows: OrderedDict[ReaderPlace, int] = OrderedDict()

    def window_bytes(self, place: ReaderPlace) -> int:
        """How many bytes are worth reading there at once; 0: as many as are asked for."""
        return self._windows.get(place, 0)

    def is_slow(self, place: ReaderPlace) -> bool:
        """Whether the last read of a reader that goes on here took long, or one here failed."""
        return self._windows.get(place) == 0

    def went_on(
        self, before: ReaderPlace, place: ReaderPlace, size_bytes: int, took_s: float
    ) -> None:
        """A reader was given so many bytes, from a read that took so long, and will go on behind them."""
        window = self._windows.pop(before, 0)
        if took_s < _QUICK_S:
            window = min(_GROWTH * max(window, size_bytes), self._max_window_bytes)
        elif took_s > _SLOW_S:
            window = 0
        self._note(place, window)

    def failed(self, place: ReaderPlace) -> None:
        """A read there failed: the next one is as small as it can be."""
        self._note(place, 0)

    def _note(self, place: ReaderPlace, window: int) -> None:
        self._windows[place] = window
        while len(self._windows) > _MAX_READERS:
            self._windows.popitem(last=False)
