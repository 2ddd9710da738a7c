"""Key-encryption keys in files, read again when they change."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import InvalidConfigurationError

from aquifer_storage.adapters.wrapping_keys import WrappingKey, parse_wrapping_key
from aquifer_storage.domain.envelope import WrappedKey, key_unavailable

logger = structlog.get_logger(__name__)

_Fingerprint = tuple[tuple[str, int, int, int, int], ...]

_UNREAD: Final[_Fingerprint] = (("", 0, 0, 0, 0),)
"""Of files that are to be read again at any rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """The ring as it was read."""

    active: str
    keys: Mapping[str, WrappingKey]


@dataclass(slots=True)
class _Look:
    """The files that were looked at for one reading of the ring, and their state before."""

    files: tuple[Path, ...] = ()
    seen: _Fingerprint = ()

    def at(self, *files: Path) -> None:
        """Look at files that are about to be read: what changes meanwhile is seen the next time."""
        self.files += files
        self.seen += _fingerprint(files)


class FileKeyRing:
    """A key ring described by a JSON file; implements `domain.ports.KeyRing`.

    The file names the active key and the file of every key, relative to its own directory:
    `{"active": "2027", "keys": {"2026": "2026.pem", "2027": "2027.key"}}`. A key file holds a PEM RSA key (private, or public for
    services that only write) or 32 bytes in base64 (AES). Files are looked at whenever a key is needed and read when they
    changed; a ring that cannot be read then is logged, and the one read before stays in use until the other one can be: also the files
    that only that one names are looked at.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loaded: _Loaded | None = None
        self._look = _Look()
        self._complaint = ""
        self._lock = asyncio.Lock()

    async def active_key_id(self) -> str:
        """Return the id of the key that wraps new data keys."""
        return (await self._ring()).active

    async def wrap(self, data_key: bytes) -> WrappedKey:
        """Wrap a data key with the active key."""
        ring = await self._ring()
        key = ring.keys[ring.active]
        data = await asyncio.to_thread(key.wrap, data_key)
        return WrappedKey(key_id=ring.active, algorithm=key.algorithm, data=data)

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Unwrap a data key.

        Raises:
            PreconditionError: the key is not in the ring, has no private half there, or is another one.
        """
        ring = await self._ring()
        key = ring.keys.get(wrapped.key_id)
        if key is None:
            raise key_unavailable(
                wrapped.key_id,
                f"key {wrapped.key_id!r} is not in key ring {self._path}, which has {sorted(ring.keys)}",
            )
        data_key = None
        if key.algorithm == wrapped.algorithm:
            data_key = await asyncio.to_thread(key.unwrap, wrapped.data)
        if data_key is None:
            raise key_unavailable(
                wrapped.key_id,
                f"key {wrapped.key_id!r} of key ring {self._path} does not open what was wrapped with {wrapped.algorithm} "
                "under this id: it is another key, or only the public half",
            )
        return data_key

    async def check(self) -> None:
        """Return when the ring can be read.

        Raises:
            InvalidConfigurationError: it was never read and cannot be.
        """
        await self._ring()

    async def close(self) -> None:
        """Nothing is held."""

    async def _ring(self) -> _Loaded:
        async with self._lock:
            loaded = self._loaded
            if loaded is None:
                loaded = self._loaded = await self._load()
            elif await asyncio.to_thread(_fingerprint, self._look.files) != self._look.seen:
                loaded = self._loaded = await self._reload(loaded)
            return loaded

    async def _reload(self, loaded: _Loaded) -> _Loaded:
        try:
            return await self._load()
        except InvalidConfigurationError as error:
            if error.message != self._complaint:
                self._complaint = error.message
                logger.error("key_ring_is_refused_and_the_one_before_stays", error=error.message)
            return loaded

    async def _load(self) -> _Loaded:
        look = _Look()
        try:
            loaded = await asyncio.to_thread(self._read_files, look)
        except InvalidConfigurationError:
            self._look = look
            raise
        self._look = look
        self._complaint = ""
        logger.info("key_ring_read", active=loaded.active, keys=sorted(loaded.keys))
        return loaded

    def _read_files(self, look: _Look) -> _Loaded:
        look.at(self._path)
        active, names = _parse(self._read(self._path, look), self._path)
        files = {key_id: self._path.parent / name for key_id, name in names.items()}
        look.at(*files.values())
        keys = {
            key_id: parse_wrapping_key(self._read(file, look), f"key {key_id!r} in {file}")
            for key_id, file in files.items()
        }
        return _Loaded(active=active, keys=keys)

    def _read(self, path: Path, look: _Look) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            look.seen = _UNREAD
            raise InvalidConfigurationError(
                f"{path} of key ring {self._path} cannot be read: {error.strerror}"
            ) from error


def _parse(content: bytes, path: Path) -> tuple[str, dict[str, str]]:
    """Return the id of the active key and the file names by key id."""
    try:
        document = json.loads(content)
        active, keys = document["active"], document["keys"]
        names = {str(key_id): Path(str(name)).as_posix() for key_id, name in keys.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfigurationError(
            f'{path} is no key ring: {{"active": id, "keys": {{id: file}}}} is expected'
        ) from error
    if not isinstance(active, str) or active not in names:
        raise InvalidConfigurationError(
            f"the active key {active!r} is not among the keys of key ring {path}"
        )
    return active, names


def _fingerprint(files: tuple[Path, ...]) -> _Fingerprint:
    found = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        # The time of the last change of permissions as well: they may be what is put right.
        found.append((str(file), stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
