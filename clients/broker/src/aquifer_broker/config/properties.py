"""Reads and writes the syntax of `java.util.Properties`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aquifer_core.errors import InvalidConfigurationError

__all__ = ["load_properties", "parse_override", "parse_properties"]

_WHITESPACE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_properties(path: Path) -> dict[str, str]:
    """Reads a file; the last value of a key wins, as in Java.

    Raises:
        InvalidConfigurationError: the file cannot be read or has a malformed escape.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfigurationError(f"cannot read {path}: {error}") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    r"""Parses `key=value`, `key:value` and `key value` lines with `#`/`!` comments, `\` continuations and escapes.

    Raises:
        InvalidConfigurationError: a `\uXXXX` escape is malformed.
    """
    return dict(_split(line) for line in _logical_lines(text))


def parse_override(text: str) -> tuple[str, str]:
    """Splits the `key=value` of a command line.

    Raises:
        InvalidConfigurationError: there is no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InvalidConfigurationError(f"override {text!r} is not of the form key=value")
    return key.strip(), value.strip()


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    continues = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_WHITESPACE)
        if not continues and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        continues = trailing % 2 == 1
        pending += line[:-1] if continues else line
        if not continues:
            yield pending
            pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITESPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_WHITESPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITESPACE)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            parts.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "u":
            parts.append(_unicode("".join(next(characters, "") for _ in range(4))))
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)


def _unicode(digits: str) -> str:
    try:
        if len(digits) != 4:
            raise ValueError(digits)
        return chr(int(digits, 16))
    except ValueError as error:
        raise InvalidConfigurationError(f"\\u{digits} is not a \\uXXXX escape") from error
