"""When producers, or readers of what is local, were last served."""

import time
from collections.abc import Callable

__all__ = ["HotTraffic"]


class HotTraffic:
    """Clients that count on milliseconds: all but those that read what is remote."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last_s = float("-inf")

    def seen(self) -> None:
        """Records were appended, or read from a local log."""
        self._last_s = self._now_s()

    def is_within(self, seconds: float) -> bool:
        """Whether there was any in so many seconds."""
        return self._now_s() - self._last_s <= seconds
