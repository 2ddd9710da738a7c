"""When producers, or readers of what is local, were last served."""

import time
from collections.abc import Callable
from typing import Final

from aquifer_broker.protocol.client import Client

__all__ = ["HotTraffic"]


_CATCHING_UP_S: Final = 10.0


class HotTraffic:
    """Clients that count on milliseconds: producers, and readers of local records that have not read remote ones just before.

    A consumer of many partitions that catches up reads now of these, now of those; it must not give way to itself.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last_s = float("-inf")

    def seen(self) -> None:
        """Records were appended, or read from a local log."""
        self._last_s = self._now_s()

    def fetched(self, client: Client, *, local: bool, remote: bool) -> None:
        """A client gets local records, or waits for remote ones, or both."""
        if remote:
            client.remote_until_s = self._now_s() + _CATCHING_UP_S
        elif local and self._now_s() >= client.remote_until_s:
            self.seen()

    def is_within(self, seconds: float) -> bool:
        """Whether there was any in so many seconds."""
        return self._now_s() - self._last_s <= seconds
