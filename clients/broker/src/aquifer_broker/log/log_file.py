"""The `.log` file of a segment: vectored appends and reads that never wait for the disk in the event loop."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aquifer_core.formats.checksum import Buffer

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.open_files import needs_free_file

__all__ = ["LogFile"]

# The kernel takes at most this many pieces in one vectored write.
_MAX_PIECES = 1024
_NOWAIT_REFUSED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class LogFile:
    """An append-only file, opened when first needed.

    Lives in the event loop's thread. Work in other threads holds a pin, so that the descriptor stays valid until it is done,
    also when the segment is deleted meanwhile.
    """

    __slots__ = ("_descriptor", "_doomed", "_pins", "path", "size_bytes")

    _nowait_supported = hasattr(os, "RWF_NOWAIT")

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Opens an existing file lazily, or makes an empty one now.

        Raises:
            OSError: The file does not exist or cannot be made.
        """
        self.path = path
        self._descriptor = -1
        self._pins = 0
        self._doomed = False
        if create:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.size_bytes = 0 if create else path.stat().st_size

    @property
    def descriptor(self) -> int:
        """The open descriptor; only valid until control returns to the event loop unless pinned.

        Raises:
            NoFreeFileError: There is none to be had now.
        """
        if self._descriptor < 0:
            with needs_free_file(self.path):
                self._descriptor = os.open(self.path, os.O_RDWR)
        return self._descriptor

    @contextmanager
    def pinned(self) -> Iterator[int]:
        """Keeps the descriptor open for work in another thread; enter and leave in the event loop's thread."""
        descriptor = self.descriptor
        self._pins += 1
        try:
            yield descriptor
        finally:
            self._pins -= 1
            if self._doomed and not self._pins:
                self._close_now()

    def append(self, pieces: Sequence[Buffer], size_bytes: int) -> int:
        """Writes pieces one after the other at the end; returns the position of the first byte.

        Raises:
            OSError: Nothing was appended, as far as the disk lets itself be told.
        """
        position = self.size_bytes
        if len(pieces) > _MAX_PIECES:
            pieces = (b"".join(pieces),)
        try:
            written = os.pwritev(self.descriptor, pieces, position)
            if written != size_bytes:
                self._write_rest(pieces, position, written)
        except OSError:
            self._drop_torn_write(position)
            raise
        self.size_bytes = position + size_bytes
        return position

    def read_now(self, position: int, size: int) -> bytes:
        """Reads at most `size` bytes, waiting for the disk if need be."""
        return os.pread(self.descriptor, size, position)

    async def read(self, position: int, size: int) -> Buffer:
        """Reads at most `size` bytes: at once what the page cache has, the rest in a thread."""
        if not LogFile._nowait_supported:
            return os.pread(self.descriptor, size, position)
        buffer = bytearray(size)
        got = self._read_cached(buffer, position)
        if got is None:
            return os.pread(self.descriptor, size, position)
        wanted = min(size, self.size_bytes - position)
        if got < wanted:
            with self.pinned() as descriptor:
                rest = memoryview(buffer)[got:wanted]
                got += await on_disk(os.preadv, descriptor, [rest], position + got)
        return buffer if got == size else memoryview(buffer)[:got]

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file."""
        os.ftruncate(self.descriptor, size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Closes now, or when the last pin goes."""
        if self._pins:
            self._doomed = True
        else:
            self._close_now()

    @staticmethod
    def _read_into(descriptor: int, buffer: bytearray, position: int) -> int:
        try:
            return os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0

    def _read_cached(self, buffer: bytearray, position: int) -> int | None:
        """Bytes the page cache had; none when the file system cannot tell."""
        try:
            return self._read_into(self.descriptor, buffer, position)
        except OSError as error:
            if error.errno not in _NOWAIT_REFUSED:
                raise
            LogFile._nowait_supported = False
            return None

    def _write_rest(self, pieces: Sequence[Buffer], position: int, written: int) -> None:
        rest = memoryview(b"".join(pieces))[written:]
        position += written
        while rest:
            count = os.pwrite(self.descriptor, rest, position)
            rest, position = rest[count:], position + count

    def _drop_torn_write(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self.descriptor, size_bytes)
        except OSError:
            # The log dir goes offline with the error that led here; recovery cuts the torn batch.
            return

    def _close_now(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._doomed = False
        if descriptor >= 0:
            os.close(descriptor)
