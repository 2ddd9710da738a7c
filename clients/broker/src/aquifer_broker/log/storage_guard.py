"""Takes a log dir offline when its disk fails, and keeps everybody off it afterwards."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import structlog

from aquifer_broker.log.log_errors import LogStorageError

__all__ = ["StorageGuard"]

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
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            self.fail(error)
            raise self._refusal() from error

    def _refusal(self) -> LogStorageError:
        return LogStorageError(
            f"log dir {self.path} is offline: {self.error}", metadata={"logDir": str(self.path)}
        )
