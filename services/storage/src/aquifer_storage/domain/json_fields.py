"""Reads a JSON document whose every surprise is a corrupt segment."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, Self, TypeVar

from aquifer_core.errors import CorruptSegmentError

_Member = TypeVar("_Member", bound=Enum)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_INT64: Final = (1 << 63) - 1


class JsonFields:
    """The fields of one JSON object.

    Every method raises `CorruptSegmentError`, naming the place, when the field is missing or not what it should be.
    """

    def __init__(self, fields: Mapping[str, object], where: str) -> None:
        self._fields = fields
        self.where = where

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Parse a document that is one object."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptSegmentError(f"{where} is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise CorruptSegmentError(f"{where} is not a JSON object")
        return cls(document, where)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._fields

    def is_null(self, name: str) -> bool:
        """Whether the field is null."""
        return self._field(name) is None

    def names(self) -> list[str]:
        """Names of all fields."""
        return list(self._fields)

    def fields(self, name: str) -> "JsonFields":
        """The fields of an object."""
        value = self._field(name)
        if not isinstance(value, dict):
            raise self._refused(name, "an object")
        return JsonFields(value, f"{self.where}, {name}")

    def text(self, name: str) -> str:
        """A string."""
        value = self._field(name)
        if not isinstance(value, str):
            raise self._refused(name, "a string")
        return value

    def boolean(self, name: str) -> bool:
        """A truth value."""
        value = self._field(name)
        if not isinstance(value, bool):
            raise self._refused(name, "true or false")
        return value

    def integer(
        self, name: str, *, minimum: int = -_MAX_INT64 - 1, maximum: int = _MAX_INT64
    ) -> int:
        """A whole number, of 64 bits at most."""
        value = self._field(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._refused(name, "a whole number")
        if not minimum <= value <= maximum:
            raise self._refused(name, f"between {minimum} and {maximum}")
        return value

    def sha256(self, name: str) -> str:
        """A SHA-256 in hex."""
        value = self.text(name)
        if not _SHA256.fullmatch(value):
            raise self._refused(name, "a SHA-256 in hex")
        return value

    def hex_or_none(self, name: str) -> bytes | None:
        """Bytes in hex, or null."""
        return None if self.is_null(name) else self.hex(name)

    def hex(self, name: str) -> bytes:
        """Bytes in hex."""
        try:
            return bytes.fromhex(self.text(name))
        except ValueError as error:
            raise self._refused(name, "bytes in hex") from error

    def base64(self, name: str) -> bytes:
        """Bytes in Base64."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._refused(name, "bytes in Base64") from error

    def member(self, name: str, kind: type[_Member]) -> _Member:
        """The name of a member of an enum."""
        try:
            return kind[self.text(name)]
        except KeyError as error:
            raise self._refused(name, f"one of {[member.name for member in kind]}") from error

    def key_as_integer(self, name: str) -> int:
        """A field's name, which is a whole number."""
        if not re.fullmatch(r"-?[0-9]{1,10}", name):
            raise self._refused(name, "named by a whole number")
        return int(name)

    def _field(self, name: str) -> object:
        if name not in self._fields:
            raise CorruptSegmentError(f"{self.where} has no field {name!r}")
        return self._fields[name]

    def _refused(self, name: str, expected: str) -> CorruptSegmentError:
        return CorruptSegmentError(f"{self.where}: field {name!r} is not {expected}")
