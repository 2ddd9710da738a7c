"""Decides how far a reader of a segment is read ahead."""

from collections import OrderedDict
from typing import Final

from aquifer_core.ids import KafkaUuid

_MAX_READERS: Final = 10_000
_GROWTH: Final = 4


class ReadAhead:
    """Recognizes sequential readers: who asks for a chunk after the one before it.

    The first step of a reader opens a window of one chunk, each further step makes it four times as large: the fewer steps, the fewer
    small requests. A chunk asked again, as a reader of small pieces does, changes nothing.
    """

    def __init__(self, max_window_bytes: int) -> None:
        self._max_window_bytes = max_window_bytes
        self._windows: OrderedDict[tuple[KafkaUuid, int], int] = OrderedDict()

    def window_bytes(self, segment_id: KafkaUuid, number: int, chunk_bytes: int) -> int:
        """Return how many bytes after a chunk are worth reading, now that the chunk is asked for."""
        again = self._windows.get((segment_id, number + 1))
        if again is not None:
            return again
        before = self._windows.pop((segment_id, number), None)
        window = 0
        if before is not None:
            window = min(max(chunk_bytes, _GROWTH * before), self._max_window_bytes)
        self._windows[segment_id, number + 1] = window
        while len(self._windows) > _MAX_READERS:
            self._windows.popitem(last=False)
        return window

    def pace_bytes(self, segment_id: KafkaUuid, number: int) -> int:
        """Return the window of a reader that will ask for a chunk next; 0 when none is known."""
        return self._windows.get((segment_id, number), 0)

    def expect(self, segment_id: KafkaUuid, number: int, window_bytes: int) -> None:
        """Say that a reader will ask for a chunk next, coming from elsewhere, with its window."""
        self._windows[segment_id, number] = min(window_bytes, self._max_window_bytes)
