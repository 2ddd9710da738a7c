"""Small files that are replaced as a whole and survive a power cut."""

import os
from pathlib import Path

from aquifer_core.formats.checksum import Buffer

__all__ = ["fsync_directory", "fsync_path", "write_atomically"]


def write_atomically(path: Path, data: Buffer) -> None:
    """Replaces a file: temporary file, fsync, rename, fsync of the directory. Blocks.

    Raises:
        OSError: The old content is then still in place.
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Makes renames and new names in a directory durable. Blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_path(path: Path) -> None:
    """Makes a file's content durable; a file that is gone needs nothing. Blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
