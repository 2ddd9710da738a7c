"""Which log dirs a broker has, remembered in each of them: the others tell when one is missing."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from aquifer_core.errors import CorruptIndexError, InvalidRequestError
from aquifer_core.ids import KafkaUuid

__all__ = ["KNOWN_DIRS_NAME", "KnownDirs"]

KNOWN_DIRS_NAME: Final = "known-log-dirs"
"""Of our own, beside `meta.properties`; Kafka ignores it."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDirs:
    """Log dirs by directory id.

    Attributes:
        paths: Where each dir was used last, those given up too.
        given_up: Dirs whose content somebody declared lost; what they held may be begun anew.
    """

    paths: Mapping[KafkaUuid, str] = field(default_factory=dict)
    given_up: frozenset[KafkaUuid] = frozenset()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Reads the file.

        Raises:
            CorruptIndexError: It is malformed or of another version.
        """
        try:
            content: Any = json.loads(data)
            if content["version"] != _VERSION:
                raise CorruptIndexError(
                    f"{KNOWN_DIRS_NAME}: version {content['version']} is not supported"
                )
            return cls(
                paths={KafkaUuid.parse(key): str(path) for key, path in content["dirs"].items()},
                given_up=frozenset(map(KafkaUuid.parse, content["given_up"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, InvalidRequestError) as error:
            raise CorruptIndexError(f"{KNOWN_DIRS_NAME} is malformed: {error}") from error

    def format(self) -> bytes:
        """The file's content."""
        content = {
            "version": _VERSION,
            "dirs": {str(key): path for key, path in self.paths.items()},
            "given_up": sorted(map(str, self.given_up)),
        }
        return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def merged(cls, each: Iterable["KnownDirs"]) -> "KnownDirs":
        """What any of them knows."""
        paths: dict[KafkaUuid, str] = {}
        given_up: set[KafkaUuid] = set()
        for known in each:
            paths.update(known.paths)
            given_up |= known.given_up
        return cls(paths=paths, given_up=frozenset(given_up))

    def with_present(self, present: Mapping[KafkaUuid, str]) -> "KnownDirs":
        """The same, with dirs where they are now."""
        return KnownDirs(paths={**self.paths, **present}, given_up=self.given_up)
