"""Notes in the directories of a log that moves between log dirs, so that a crash, or a dir that is away, leaves no doubt."""

from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import KafkaUuid

from aquifer_broker.log.atomic_file import fsync_directory, write_atomically

__all__ = [
    "MOVED_FROM_NAME",
    "MOVING_TO_NAME",
    "has_note",
    "leave_note",
    "read_note",
    "remove_note",
]

logger = structlog.get_logger(__name__)

# Of our own; Kafka ignores them. Each holds a directory id.
MOVED_FROM_NAME: Final = "moved-from"
"""In the new directory: proves that it and the old one are copies of one log. It stays, since the old dir may be away."""
MOVING_TO_NAME: Final = "moving-to"
"""In the old directory before the log goes on in the new one: while the new dir is away, this one may be behind."""


def leave_note(directory: Path, name: str, log_dir_id: KafkaUuid) -> None:
    """Leaves a note, durably. Blocks.

    Raises:
        OSError: The disk failed.
    """
    write_atomically(directory / name, str(log_dir_id).encode())


def has_note(directory: Path, name: str) -> bool:
    """Whether there is a note. Blocks."""
    return (directory / name).exists()


def remove_note(directory: Path, name: str) -> None:
    """Takes a note away, durably. Idempotent. Blocks.

    Raises:
        OSError: The disk failed.
    """
    (directory / name).unlink(missing_ok=True)
    fsync_directory(directory)


def read_note(directory: Path, name: str) -> KafkaUuid | None:
    """The directory id in a note; zero: it cannot be read; None: there is none. Blocks.

    Raises:
        OSError: The disk failed.
    """
    path = directory / name
    try:
        return KafkaUuid.parse(path.read_bytes().decode(errors="replace"))
    except FileNotFoundError:
        return None
    except InvalidRequestError as error:
        logger.warning("move_note_corrupt", path=str(path), error=str(error))
        return KafkaUuid.ZERO
