"""The other end of a connection, and what is sent to it."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Client", "Reply"]


class Client:
    """Who is at the other end of a connection.

    Attributes:
        gone: the connection ended; nobody waits for the answer.
        hurried: a long poll should be answered now, because the client is gone or the broker stops.
        remote_until_s: until when its reads of local records are taken for the rest of a remote one.
    """

    __slots__ = ("_on_hurry", "gone", "host", "hurried", "listener", "port", "remote_until_s")

    def __init__(self, *, host: str, port: int, listener: str) -> None:
        self.host = host
        self.port = port
        self.listener = listener
        self.gone = False
        self.hurried = False
        self.remote_until_s = float("-inf")
        self._on_hurry: set[Callable[[], None]] = set()

    def watch(self, on_hurry: Callable[[], None]) -> Callable[[], None]:
        """Calls back when a long poll need not go on; returns the undo."""
        self._on_hurry.add(on_hurry)
        return lambda: self._on_hurry.discard(on_hurry)

    def hurry(self) -> None:
        """Ends long polls."""
        self.hurried = True
        for on_hurry in tuple(self._on_hurry):
            on_hurry()

    def leave(self) -> None:
        """The connection ended."""
        self.gone = True
        self.hurry()


@dataclass(frozen=True, slots=True)
class Reply:
    """Buffers to send in order; `sent` is called once they left, also when the connection broke."""

    buffers: list[bytes | bytearray | memoryview]
    sent: Callable[[], None] | None = None
