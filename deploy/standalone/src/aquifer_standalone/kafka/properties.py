"""Java properties of the simple kind that Kafka's files use: one `key=value` a line, comments with `#`."""

from collections.abc import Mapping
from pathlib import Path


def read_properties(file: Path) -> dict[str, str]:
    """Read a file without escapes and continued lines."""
    found = {}
    for line in file.read_text().splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            found[key.strip()] = value.strip()
    return found


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    """Write a file."""
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
