"""Reads string properties, and refuses those that nobody reads."""

from collections.abc import Mapping
from typing import Final

from aquifer_core.errors import InvalidConfigurationError

# A node adds these to the properties of every role.
_PASSED_ALONG: Final = frozenset({"broker.id", "cluster.id", "log.dir"})


class Properties:
    """String properties by key.

    Every reading method raises `InvalidConfigurationError` that names key and remedy.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._read: set[str] = set(_PASSED_ALONG)

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default it must be given and not be empty."""
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None or (not value and default is None):
            raise refused(key, f"{key} is missing; give it a value")
        return value

    def positive(self, key: str, default: int) -> int:
        """A whole number above zero."""
        text = self.text(key, str(default)).strip()
        if not text.isdecimal() or int(text) < 1:
            raise refused(key, f"{key} is {text!r}; it must be a whole number above zero")
        return int(text)

    def boolean(self, key: str, default: bool) -> bool:
        """`true` or `false`."""
        text = self.text(key, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise refused(key, f"{key} is {text!r}; it must be true or false")
        return text == "true"

    def refuse_the_rest(self) -> None:
        """Refuse properties that were given and not read."""
        for key in self._values:
            if key not in self._read:
                raise refused(key, f"{key} is not known here; remove it")


def refused(key: str, message: str) -> InvalidConfigurationError:
    """Return the error for a property."""
    return InvalidConfigurationError(message, metadata={"key": key})
