"""Takes a log dir offline when its disk fails, and keeps everybody off it afterwards."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import structlog
from aquifer_core.errors import NotLeaderError

from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.open_files import NO_FREE_FILE

__all__ = ["LogGuard", "StorageGuard"]

logger = structlog.get_logger(__name__)


class StorageGuard:
    """State of one log dir. As a context manager it turns an `OSError` into an offline dir and a `LogStorageError`.

    Only disk errors count: a full disk, an I/O error, a vanished file. The broker and its other dirs go on.
    """

    __slots__ = ("_on_offline", "error", "path")

    def __init__(
        self, path: Path, on_offline: Callable[["StorageGuard"], None] | None = None
    ) -> None:
        self.path = path
        self.error: OSError | None = None
        self._on_offline = on_offline

    @property
    def online(self) -> bool:
        """Whether the dir may be used."""
        return self.error is None

    def check(self) -> None:
        """Refuses when the dir is offline.

        Raises:
            LogStorageError: It is.
        """
        if self.error is not None:
            raise self._refusal()

    def fail(self, error: OSError) -> None:
        """Takes the dir offline; the first error counts."""
        if self.error is not None:
            return
        self.error = error
        logger.error("log_dir_offline", log_dir=str(self.path), error=str(error))
        if self._on_offline is not None:
            self._on_offline(self)

    def __enter__(self) -> "StorageGuard":
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        failure = _disk_failure(error)
        if failure is not None:
            self.fail(failure)
        if failure is not None and failure is error:
            raise self._refusal() from error

    def _refusal(self) -> LogStorageError:
        return LogStorageError(
            f"log dir {self.path} is offline: {self.error}", metadata={"logDir": str(self.path)}
        )


def _disk_failure(error: BaseException | None) -> OSError | None:
    """The disk's error in what was raised: itself, or what was found when a caller no longer waited for it."""
    cancelled = isinstance(error, asyncio.CancelledError)
    failure = error.__cause__ if error is not None and cancelled else error
    if not isinstance(failure, OSError) or isinstance(failure, TimeoutError):
        return None
    return None if cancelled and failure.errno in NO_FREE_FILE else failure


class LogGuard:
    """Guard of one log: that of its log dir, and a stop for whoever still holds a log that is gone."""

    __slots__ = ("_dir_guard", "_name", "retired")

    def __init__(self, dir_guard: StorageGuard, name: str) -> None:
        self._dir_guard = dir_guard
        self._name = name
        self.retired = False

    def move_to(self, dir_guard: StorageGuard) -> None:
        """The log lies in another dir from now on."""
        self._dir_guard = dir_guard

    @property
    def online(self) -> bool:
        """Whether the files of the log may be used."""
        return not self.retired and self._dir_guard.online

    def check(self) -> None:
        """Refuses when the log is gone or its dir is offline.

        Raises:
            NotLeaderError: The log was deleted.
            LogStorageError: The dir is offline.
        """
        if self.retired:
            raise self._gone()
        self._dir_guard.check()

    def __enter__(self) -> "LogGuard":
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if self.retired and (failure := _disk_failure(error)) is not None:
            if failure is error:
                raise self._gone() from error
            return
        self._dir_guard.__exit__(kind, error, traceback)

    def _gone(self) -> NotLeaderError:
        return NotLeaderError(f"the log of {self._name} is no longer on this broker")
