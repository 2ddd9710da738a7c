"""What the disk cache holds: names, sizes, last uses, and the sum of the sizes."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

_BUSY_TIMEOUT_S: Final = 5.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entry (
    name TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, used_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_used ON entry (used_ns);
CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY CHECK (id = 0), size_bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO total VALUES (0, 0);
CREATE TRIGGER IF NOT EXISTS entry_added AFTER INSERT ON entry BEGIN
    UPDATE total SET size_bytes = size_bytes + NEW.size_bytes; END;
CREATE TRIGGER IF NOT EXISTS entry_removed AFTER DELETE ON entry BEGIN
    UPDATE total SET size_bytes = size_bytes - OLD.size_bytes; END;
"""


class DiskCacheIndex:
    """An SQLite file shared by the worker processes; used by one thread of each.

    It is a cache's: it need not survive a power failure. When it cannot be read it is made anew, and `lost` is called first.

    Every method raises `sqlite3.Error` when the file cannot be used.
    """

    def __init__(self, path: Path, lost: Callable[[], None]) -> None:
        self._path = path
        self._lost = lost
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the file."""
        is_new = not self._path.exists()
        try:
            self._connect(is_new=is_new)
        except sqlite3.OperationalError:  # busy, no room, not allowed
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("disk_cache_index_is_damaged", path=str(self._path), error=repr(error))
            self.close()
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._connect(is_new=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process changes the index, or files together with it, in this block; its changes come all or none."""
        connection = self._opened
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def add(self, name: str, size_bytes: int, used_ns: int) -> None:
        """Note an entry, unless there is one of that name."""
        self._opened.execute(
            "INSERT OR IGNORE INTO entry VALUES (?, ?, ?)", (name, size_bytes, used_ns)
        )

    def holds(self, name: str) -> bool:
        """Whether there is an entry of that name."""
        return bool(self._opened.execute("SELECT 1 FROM entry WHERE name = ?", (name,)).fetchall())

    def touch(self, used_ns: Mapping[str, int]) -> None:
        """Note last uses."""
        with self.alone():
            self._opened.executemany(
                "UPDATE entry SET used_ns = ? WHERE name = ?",
                [(used, name) for name, used in used_ns.items()],
            )

    def remove(self, name: str) -> None:
        """Forget an entry."""
        self._opened.execute("DELETE FROM entry WHERE name = ?", (name,))

    def oldest(self) -> str | None:
        """Name of the entry used least recently."""
        rows = self._opened.execute("SELECT name FROM entry ORDER BY used_ns LIMIT 1").fetchall()
        return str(rows[0][0]) if rows else None

    def names_of(self, prefix: str) -> list[str]:
        """Names that begin with a prefix of hexadecimal digits."""
        rows = self._opened.execute(
            "SELECT name FROM entry WHERE name >= ? AND name < ?", (prefix, prefix + "~")
        )
        return [str(row[0]) for row in rows]

    def used_bytes(self) -> int:
        """Sum of the sizes."""
        return int(self._opened.execute("SELECT size_bytes FROM total").fetchone()[0])

    def close(self) -> None:
        """Close the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the index of the disk cache is not open")
        return self._connection

    def _connect(self, *, is_new: bool) -> None:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        if is_new:
            self._lost()
        connection.executescript(_SCHEMA)
