"""Text checkpoints: a version line, a count line, then one entry a line (K-6.1, K-6.4)."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import Buffer

__all__ = [
    "decode_text",
    "format_checkpoint",
    "parse_checkpoint",
    "parse_int32",
    "parse_int64",
]

_VERSION: Final = 0
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def decode_text(data: Buffer, name: str) -> str:
    """Decode UTF-8.

    Raises:
        CorruptIndexError: The bytes are not UTF-8; the message starts with the name.
    """
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptIndexError(f"{name}: not UTF-8 at byte {error.start}") from error


def parse_checkpoint(data: Buffer, name: str, field_count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield where each entry stands, for messages, and its fields.

    Raises:
        CorruptIndexError: Version, count or the number of fields of a line is wrong; the message
            starts with the name and tells the line.
    """
    lines = decode_text(data, name).split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise CorruptIndexError(f"{name}: line {len(lines) + 1} is missing")
    version = parse_int32(lines[0], f"{name}: line 1")
    if version != _VERSION:
        raise CorruptIndexError(f"{name}: line 1: version {version} is not supported")
    count = parse_int32(lines[1], f"{name}: line 2")
    if count != len(lines) - 2:
        raise CorruptIndexError(
            f"{name}: line 2: {count} entries announced, {len(lines) - 2} present"
        )
    for number, line in enumerate(lines[2:], start=3):
        where = f"{name}: line {number}"
        fields = line.split()
        if len(fields) != field_count:
            raise CorruptIndexError(f"{where}: malformed entry {line!r}")
        yield where, fields


def format_checkpoint(lines: Iterable[str]) -> bytes:
    """Encode entries, given without line ends."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries)).encode()


def parse_int32(text: str, where: str) -> int:
    """Parse a decimal number of 32 bits.

    Raises:
        CorruptIndexError: It is none; the message starts with where.
    """
    return _parse_int(text, 32, where)


def parse_int64(text: str, where: str) -> int:
    """Parse a decimal number of 64 bits.

    Raises:
        CorruptIndexError: It is none; the message starts with where.
    """
    return _parse_int(text, 64, where)


def _parse_int(text: str, bits: int, where: str) -> int:
    if _NUMBER.fullmatch(text) is None or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise CorruptIndexError(f"{where}: {text!r} is not a number of {bits} bits")
    return int(text)
