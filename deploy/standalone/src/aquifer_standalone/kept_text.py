"""Texts that are made once and kept beside the data: passwords, ids."""

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["kept_text", "write_private"]


def kept_text(file: Path, make: Callable[[], str]) -> str:
    """What a file holds, which is made when there is none; nobody but its owner may read it.

    The file appears with all of its content, so a crash leaves none that is empty.
    """
    if not file.exists():
        fresh = file.with_name(f"{file.name}.new")
        write_private(fresh, make())
        fresh.replace(file)
    return file.read_text().strip()


def write_private(file: Path, text: str) -> None:
    """Writes a file that nobody but its owner may read, in place of one that may be there."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)
