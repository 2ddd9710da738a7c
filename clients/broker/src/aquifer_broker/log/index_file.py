"""Append-only index files: in memory while they grow, mapped when they are only read."""

import mmap
import os
from contextlib import suppress
from pathlib import Path

from aquifer_core.formats.checksum import Buffer

from aquifer_broker.log.log_errors import NoFreeFileError
from aquifer_broker.log.open_files import needs_free_file

__all__ = ["IndexFile"]

_FLUSH_BYTES = 4096


class IndexFile:
    """Entries of one fixed size in a file.

    A growing index is a bytearray whose new entries reach the file in blocks; a finished one is mapped on first use, so that the
    page cache holds it and not the process. Entries not yet in the file are lost in a crash, which recovery makes up for.
    """

    __slots__ = ("_entry_bytes", "_grown", "_map", "_saved_bytes", "_view", "path")

    def __init__(self, path: Path, entry_bytes: int, *, create: bool = False) -> None:
        """Refers to an existing file, or makes an empty one that may grow."""
        self.path = path
        self._entry_bytes = entry_bytes
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._grown: bytearray | None = None
        self._saved_bytes = 0
        if create:
            path.write_bytes(b"")
            self._grown = bytearray()

    @property
    def data(self) -> Buffer:
        """All entries. Do not keep it past the next change of the index."""
        if self._grown is not None:
            return self._grown
        if self._view is None:
            self._map_file()
        return self._view if self._view is not None else b""

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        if self._grown is not None:
            return len(self._grown)
        return self.path.stat().st_size

    @property
    def entry_count(self) -> int:
        """Number of entries."""
        return self.size_bytes // self._entry_bytes

    def start_growing(self) -> None:
        """Loads a finished index so that it takes entries again."""
        if self._grown is None:
            content = bytearray(self.path.read_bytes())
            self.release()
            self._grown = content
            self._saved_bytes = len(content)

    def append(self, entry: bytes) -> None:
        """Adds an entry to a growing index."""
        assert self._grown is not None, f"{self.path} is finished"
        self._grown += entry
        if len(self._grown) - self._saved_bytes >= _FLUSH_BYTES:
            # What is not saved now is with the next entry.
            with suppress(NoFreeFileError):
                self.save()

    def save(self) -> bool:
        """Writes entries that are only in memory, without fsync; answers whether there were any.

        Raises:
            NoFreeFileError: They stay in memory.
        """
        if self._grown is None or len(self._grown) == self._saved_bytes:
            return False
        with needs_free_file(self.path):
            descriptor = os.open(self.path, os.O_WRONLY)
        try:
            rest = bytes(self._grown[self._saved_bytes :])
            while rest:
                count = os.pwrite(descriptor, rest, self._saved_bytes)
                self._saved_bytes += count
                rest = rest[count:]
        finally:
            os.close(descriptor)
        return True

    def finish(self) -> None:
        """Writes everything and lets go of the memory; the index is read-only until `start_growing`."""
        self.save()
        self._grown = None

    def truncate(self, size_bytes: int) -> None:
        """Drops entries behind a size."""
        self.start_growing()
        assert self._grown is not None
        if size_bytes >= len(self._grown):
            return
        del self._grown[size_bytes:]
        if size_bytes < self._saved_bytes:
            os.truncate(self.path, size_bytes)
            self._saved_bytes = size_bytes

    def close(self) -> None:
        """Saves and releases; the data may be asked for again."""
        self.finish()
        self.release()

    def _map_file(self) -> None:
        with needs_free_file(self.path), self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return
            self._map = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        self._view = memoryview(self._map)

    def release(self) -> None:
        """Lets go of the mapping; the data may be asked for again."""
        if self._view is not None:
            self._view.release()
        if self._map is not None:
            self._map.close()
        self._view, self._map = None, None
