"""Standard error as the log writes to it: a line that cannot be written is lost and counted, and fails nothing."""

from collections.abc import Callable
from typing import TextIO

__all__ = ["LogStream"]


class LogStream:
    """A text file for structlog, which writes a whole line and then flushes, under a lock.

    A full disk or a reader that has died must not fail what a line is about, nor end the loops that would make room. The first
    line that can be written again says how many were lost.
    """

    def __init__(self, inner: TextIO, notice: Callable[[int], str]) -> None:
        """`notice` makes the text that says how many lines were lost."""
        self._inner = inner
        self._notice = notice
        self._lost = 0

    def write(self, text: str) -> int:
        """Writes a line out."""
        try:
            if self._lost:
                self._inner.write(self._notice(self._lost) + "\n")
                self._inner.flush()
                self._lost = 0
            self._inner.write(text)
            self._inner.flush()
        except OSError:
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Nothing: `write` has done it."""
