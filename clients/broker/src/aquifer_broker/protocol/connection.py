"""State of one client connection, without I/O: bytes in, requests out, and when to read on."""

from collections import deque
from collections.abc import Callable
from typing import Final

from aquifer_broker.protocol.budget import RequestBudget
from aquifer_broker.protocol.framing import FrameDecoder

__all__ = ["ConnectionState"]

_MAX_QUEUED_FRAMES: Final = 16
_MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024


class ConnectionState:
    """Frames received and not answered yet, in order.

    As in Kafka one request of a connection is worked on at a time, which keeps responses and appends in order; the
    next ones wait here, few enough to be bounded, many enough that the socket is read while a request is
    processed. Every frame is accounted in the shared `RequestBudget` from the moment its size is known until it was
    answered.
    """

    __slots__ = (
        "_budget",
        "_decoder",
        "_queue",
        "_queued_bytes",
        "_resume",
        "_taken_bytes",
        "_waiting",
    )

    def __init__(
        self, *, max_request_bytes: int, budget: RequestBudget, resume: Callable[[], None]
    ) -> None:
        """`resume` is called when reading may go on after `wants_bytes` was False."""
        self._decoder = FrameDecoder(max_request_bytes)
        self._budget = budget
        self._resume = resume
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._taken_bytes = 0
        self._waiting = False

    @property
    def wants_bytes(self) -> bool:
        """Whether the socket should be read."""
        return (
            not self._waiting
            and len(self._queue) < _MAX_QUEUED_FRAMES
            and self._queued_bytes < _MAX_QUEUED_BYTES
        )

    @property
    def holds_up_others(self) -> bool:
        """Whether others wait for the budget while a part of it is kept for a request of which the rest has not come."""
        waits_for_rest = not self._waiting and self._decoder.partial_frame_bytes > 0
        return waits_for_rest and self._budget.is_waited_for

    def buffer(self) -> memoryview:
        """Where the next received bytes go."""
        return self._decoder.buffer()

    def received(self, size_bytes: int) -> bool:
        """Takes note of bytes in `buffer()`; True when a request became complete.

        Raises:
            FrameTooLargeError: the connection must be closed.
        """
        was_partial_bytes = self._decoder.partial_frame_bytes
        frames = self._decoder.advance(size_bytes)
        for frame in frames:
            if was_partial_bytes:
                was_partial_bytes = 0
            else:
                self._account(len(frame))
            self._queue.append(frame)
            self._queued_bytes += len(frame)
        partial_bytes = self._decoder.partial_frame_bytes
        if partial_bytes and not was_partial_bytes:
            self._account_or_wait(partial_bytes)
        return bool(frames)

    def next_frame(self) -> memoryview | None:
        """The oldest request, which the caller answers and then passes to `done`."""
        if not self._queue:
            return None
        frame = self._queue.popleft()
        self._queued_bytes -= len(frame)
        return frame

    def done(self, frame_bytes: int) -> None:
        """The request was answered; its bytes are given back."""
        self._taken_bytes -= frame_bytes
        self._budget.release(frame_bytes)
        if self.wants_bytes:
            self._resume()

    def close(self) -> None:
        """Gives everything back, memory too; idempotent."""
        # What is left of a connection refers to itself and may wait long for the collector.
        self._decoder.discard()
        self._budget.abandon(self._granted)
        self._budget.release(self._taken_bytes)
        self._taken_bytes = 0
        self._queue.clear()
        self._queued_bytes = 0

    def _account(self, size_bytes: int) -> None:
        """Small frames are in memory already: they are counted, and the budget is settled later."""
        self._taken_bytes += size_bytes
        self._budget.used_bytes += size_bytes

    def _account_or_wait(self, size_bytes: int) -> None:
        if self._budget.take(size_bytes, self._granted):
            self._taken_bytes += size_bytes
        else:
            self._waiting = True

    def _granted(self) -> None:
        self._taken_bytes += self._decoder.partial_frame_bytes
        self._waiting = False
        if self.wants_bytes:
            self._resume()
