"""What the disk cache holds: names, sizes, last uses, and the sum of the sizes."""

import fcntl
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

_BUSY_TIMEOUT_S: Final = 5.0
_SCHEMA: Final = (
    """CREATE TABLE entry (
    name TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, used_ns INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX entry_used ON entry (used_ns)",
    "CREATE TABLE total (id INTEGER PRIMARY KEY CHECK (id = 0), size_bytes INTEGER NOT NULL)",
    "INSERT INTO total VALUES (0, 0)",
    """CREATE TRIGGER entry_added AFTER INSERT ON entry BEGIN
    UPDATE total SET size_bytes = size_bytes + NEW.size_bytes; END""",
    """CREATE TRIGGER entry_removed AFTER DELETE ON entry BEGIN
    UPDATE total SET size_bytes = size_bytes - OLD.size_bytes; END""",
)


def is_damage(error: Exception) -> bool:
    """Whether an error tells that the file is damaged, and not that it cannot be used now."""
    return type(error) is sqlite3.DatabaseError


class DiskCacheIndex:
    """An SQLite file shared by the worker processes; used by one thread of each.

    It is a cache's: it need not survive a power failure. When there is none, or it turns out to be damaged, one process makes it anew
    and calls `lost` before any process can note an entry in it.

    It is opened by its first use. Every method raises `sqlite3.Error` when the file cannot be used.
    """

    def __init__(self, path: Path, lost: Callable[[], None]) -> None:
        self._path = path
        self._lost = lost
        self._connection: sqlite3.Connection | None = None
        self._file = 0

    def open(self) -> sqlite3.Connection:
        """Open the file, unless it is open."""
        if self._connection is not None:
            return self._connection
        with self._locked():
            try:
                return self._connect()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):  # busy, no room, not allowed
                    raise
                self._remove_files(error)
                return self._connect()

    def renew(self, error: sqlite3.Error) -> None:
        """Make the file anew after an error that tells of damage, unless another process has done so already."""
        self.close()
        with self._locked():
            if self._path.stat().st_ino == self._file:
                self._remove_files(error)
            self._connect()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process changes the index, or files together with it, in this block; its changes come all or none."""
        connection = self.open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def add(self, name: str, size_bytes: int, used_ns: int) -> None:
        """Note an entry, unless there is one of that name."""
        self.open().execute(
            "INSERT OR IGNORE INTO entry VALUES (?, ?, ?)", (name, size_bytes, used_ns)
        )

    def holds(self, name: str) -> bool:
        """Whether there is an entry of that name."""
        return bool(self.open().execute("SELECT 1 FROM entry WHERE name = ?", (name,)).fetchall())

    def touch(self, used_ns: Mapping[str, int]) -> None:
        """Note last uses."""
        with self.alone():
            self.open().executemany(
                "UPDATE entry SET used_ns = ? WHERE name = ?",
                [(used, name) for name, used in used_ns.items()],
            )

    def remove(self, name: str) -> None:
        """Forget an entry."""
        self.open().execute("DELETE FROM entry WHERE name = ?", (name,))

    def oldest(self) -> str | None:
        """Name of the entry used least recently."""
        rows = self.open().execute("SELECT name FROM entry ORDER BY used_ns LIMIT 1").fetchall()
        return str(rows[0][0]) if rows else None

    def names_of(self, prefix: str) -> list[str]:
        """Names that begin with a prefix of hexadecimal digits."""
        rows = self.open().execute(
            "SELECT name FROM entry WHERE name >= ? AND name < ?", (prefix, prefix + "~")
        )
        return [str(row[0]) for row in rows]

    def used_bytes(self) -> int:
        """Sum of the sizes."""
        return int(self.open().execute("SELECT size_bytes FROM total").fetchone()[0])

    def close(self) -> None:
        """Close the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the file, or with the process
            yield

    def _remove_files(self, error: sqlite3.Error) -> None:
        logger.warning("disk_cache_index_is_damaged", path=str(self._path), error=repr(error))
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        connection = self._connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            self._file = self._path.stat().st_ino
            with self.alone():
                self._make(connection)
        except BaseException:
            self.close()
            raise
        return connection

    def _make(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchall():
            return
        self._lost()
        for statement in _SCHEMA:
            connection.execute(statement)
