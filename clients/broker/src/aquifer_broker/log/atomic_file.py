"""Small files that are replaced as a whole and survive a power cut."""

import os
from pathlib import Path

from aquifer_core.formats.checksum import Buffer

from aquifer_broker.log.open_files import needs_free_file

__all__ = ["fsync_directory", "fsync_path", "write_atomically"]


def write_atomically(path: Path, data: Buffer) -> None:
    """Replaces a file: temporary file, fsync, rename, fsync of the directory. Blocks.

    Raises:
        NoFreeFileError: There is no file to write to, or no way to make the new one durable; it may be in place.
        OSError: The disk failed.
    """
    temporary = path.with_name(path.name + ".tmp")
    with needs_free_file(path):
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
    with needs_free_file(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_path(path: Path) -> None:
    """Makes a file's content durable; a file that is gone needs nothing. Blocks."""
    try:
        with needs_free_file(path):
            descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
