"""The subset of Java's property files that brokers write."""

import re
from collections.abc import Mapping
from typing import Final

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checkpoint import decode_text
from aquifer_core.formats.checksum import Buffer

__all__ = ["format_properties", "parse_properties"]

# An unescaped separator, with the spaces around it, ends the key. Line continuations and \u escapes
# do not occur in the files that brokers write.
_LINE: Final = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+)(.*)")
_ESCAPED: Final = re.compile(r"\\(.)")
_SPECIAL: Final = re.compile(r"([\\=:#!])")


def parse_properties(data: Buffer, name: str) -> dict[str, str]:
    """Parse lines of `key=value`; comments and empty lines are skipped, later keys win.

    Raises:
        CorruptIndexError: A line is malformed; the message starts with the name and tells it.
    """
    properties: dict[str, str] = {}
    for number, raw in enumerate(decode_text(data, name).split("\n"), start=1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise CorruptIndexError(f"{name}: line {number}: malformed property {line!r}")
        key, value = (_ESCAPED.sub(r"\1", part) for part in match.groups())
        properties[key] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties, one a line; neither keys nor values may hold white space at their ends."""
    lines = (
        f"{_SPECIAL.sub(_escape, key)}={_SPECIAL.sub(_escape, value)}\n"
        for key, value in properties.items()
    )
    return "".join(lines).encode()


def _escape(match: re.Match[str]) -> str:
    return "\\" + match[1]
