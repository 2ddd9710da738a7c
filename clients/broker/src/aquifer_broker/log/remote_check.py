"""A note in a log's directory: its files may lack what remote storage has, and the two were not compared yet."""

from pathlib import Path
from typing import Final

from aquifer_broker.log.atomic_file import fsync_directory, write_atomically

__all__ = ["REMOTE_CHECK_NAME", "is_check_due", "remove_check", "require_check"]

REMOTE_CHECK_NAME: Final = "remote-check-pending"
"""Of our own; Kafka ignores it. It outlives a crash between the making of an empty log and its restoration."""


def require_check(directory: Path) -> None:
    """Leaves the note, durably. Blocks."""
    write_atomically(directory / REMOTE_CHECK_NAME, b"")


def is_check_due(directory: Path) -> bool:
    """Whether the note is there. Blocks."""
    return (directory / REMOTE_CHECK_NAME).exists()


def remove_check(directory: Path) -> None:
    """Takes the note away, durably. Idempotent. Blocks."""
    (directory / REMOTE_CHECK_NAME).unlink(missing_ok=True)
    fsync_directory(directory)
