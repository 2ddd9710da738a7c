"""Cuts a byte stream into Kafka frames: int32 size, then that many bytes."""

from typing import Final

from aquifer_core.errors import InvalidRequestError
from kio.serial.readers import read_int32

__all__ = ["SIZE_BYTES", "FrameDecoder", "FrameTooLargeError"]

SIZE_BYTES: Final = 4
_CHUNK_BYTES: Final = 64 * 1024


class FrameTooLargeError(InvalidRequestError):
    """A frame's size is negative or above `socket.request.max.bytes`; the stream cannot be read on."""


class FrameDecoder:
    """Incremental decoder without I/O.

    The caller writes received bytes into `buffer()` and calls `advance`. Small frames are cut out of one
    reused chunk; a frame that is not complete there gets a buffer of its exact size, so that a large
    request is received straight into place. That buffer is made when it is first asked for: who announces a large
    frame costs no memory before the caller wants to read it.
    """

    __slots__ = (
        "_chunk",
        "_filled",
        "_frame",
        "_frame_filled",
        "_max_frame_bytes",
        "_partial_bytes",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._chunk = bytearray(_CHUNK_BYTES)
        self._filled = 0
        self._partial_bytes = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    @property
    def partial_frame_bytes(self) -> int:
        """Full size of the frame that is being received; 0 between frames."""
        return self._partial_bytes

    def buffer(self) -> memoryview:
        """Where the next received bytes go; never empty."""
        if not self._partial_bytes:
            return memoryview(self._chunk)[self._filled :]
        frame = self._frame if self._frame is not None else self._begin_frame()
        return memoryview(frame)[self._frame_filled :]

    def advance(self, received_bytes: int) -> list[memoryview]:
        """Takes note of bytes written into `buffer()` and returns the frames they complete, read-only.

        Raises:
            FrameTooLargeError: a frame announces a size that is not acceptable.
        """
        if self._frame is None:
            self._filled += received_bytes
            return self._cut_chunk()
        self._frame_filled += received_bytes
        if self._frame_filled < self._partial_bytes:
            return []
        frame = memoryview(self._frame).toreadonly()
        self._frame, self._partial_bytes = None, 0
        return [frame]

    def discard(self) -> None:
        """Lets go of what was received; nothing is decoded afterwards. Idempotent."""
        self._chunk = bytearray(SIZE_BYTES)
        self._filled = self._partial_bytes = 0
        self._frame = None

    def _cut_chunk(self) -> list[memoryview]:
        frames: list[memoryview] = []
        view = memoryview(self._chunk).toreadonly()
        position = 0
        while self._filled - position >= SIZE_BYTES:
            size = self._checked_size(view, position)
            start = position + SIZE_BYTES
            if self._filled - start < size:
                self._partial_bytes = size
                position = start
                break
            frames.append(memoryview(bytes(view[start : start + size])))
            position = start + size
        rest = self._filled - position
        self._chunk[:rest] = self._chunk[position : self._filled]
        self._filled = rest
        return frames

    def _checked_size(self, view: memoryview, position: int) -> int:
        size, _ = read_int32(view, position)
        if not 0 <= size <= self._max_frame_bytes:
            raise FrameTooLargeError(
                f"a request of {size} bytes is refused; socket.request.max.bytes is"
                f" {self._max_frame_bytes}"
            )
        return size

    def _begin_frame(self) -> bytearray:
        """Goes on in a buffer of its own with what the chunk has of the frame."""
        frame = self._frame = bytearray(self._partial_bytes)
        frame[: self._filled] = self._chunk[: self._filled]
        self._frame_filled, self._filled = self._filled, 0
        return frame
