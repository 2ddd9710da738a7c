"""How many files the process may have open: each log holds one open, each segment that is read up to three."""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from aquifer_broker.log.log_errors import NoFreeFileError

__all__ = ["NO_FREE_FILE", "needs_free_file", "raise_open_files_limit"]

logger = structlog.get_logger(__name__)

NO_FREE_FILE: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of the process, or the system, that say nothing of a disk."""


def raise_open_files_limit() -> None:
    """Takes as many as the system allows, as Java does for Kafka; what shells begin with is often 1,024. Idempotent.

    Without a free descriptor nothing is read but what is open, and nothing rolled.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("open_files_limit_not_raised", limit=soft, hard=hard, error=str(error))


@contextmanager
def needs_free_file(path: Path) -> Iterator[None]:
    """For work that opens files before it changes anything, or that may be repeated.

    Raises:
        NoFreeFileError: There is no free descriptor, in the process or in the system.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_FREE_FILE:
            raise
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise NoFreeFileError(
            f"no file can be opened for {path}: {error.strerror}; this process may have {soft} open files and connections: "
            "raise its limit (ulimit -n, LimitNOFILE)"
        ) from error
