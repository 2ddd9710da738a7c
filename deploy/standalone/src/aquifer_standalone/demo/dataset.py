"""Real text to tier: lines of the Python standard library's sources, or of a file of the user's."""

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIN_BYTES = 256 * 1024 * 1024
_TIMESTAMP_STEP_RECORDS = 16
"""Neighbouring records share a timestamp, as they do in life; look-ups by time must still find the first."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record to produce."""

    key: bytes
    value: bytes


def load_lines(source: Path | None = None) -> list[Line]:
    """Every text line of the data set, each keyed by where it stands.

    Args:
        source: a file of the user's; None for the standard library's sources.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has no line.
    """
    files = [source] if source else _standard_library()
    lines = [line for file in files for line in _lines_of(file)]
    if not lines:
        raise ValueError(f"{source}: no lines to tier")
    return lines


def repeated(lines: list[Line], min_bytes: int) -> Iterator[Line]:
    """The lines again and again, whole rounds, until at least `min_bytes` of keys and values."""
    round_bytes = sum(len(line.key) + len(line.value) for line in lines)
    for _ in range(max(1, -(-min_bytes // round_bytes))):
        yield from lines


def timestamp_ms(base_ms: int, sequence: int) -> int:
    """Timestamp of the n-th record of a partition; rises slowly, with ties."""
    return base_ms + sequence // _TIMESTAMP_STEP_RECORDS


def _standard_library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)


def _lines_of(file: Path) -> Iterator[Line]:
    name = "/".join(file.parts[-2:]).encode()
    for number, value in enumerate(file.read_bytes().splitlines(), start=1):
        yield Line(b"%b:%d" % (name, number), value)
