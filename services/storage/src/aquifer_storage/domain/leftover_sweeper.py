"""Deletes objects of copies that failed: those that a crash left, and those that the store wrote after it was told to delete.

A store may carry a request out that its sender has given up, also after the deletion that followed. Nobody asks for such an
object again, and metadata has forgotten its segment; only its age tells.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import structlog
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.ports import Clock

from aquifer_storage.domain.manifest import decode_manifest
from aquifer_storage.domain.object_key import (
    MANIFEST_SUFFIX,
    ObjectKeys,
    keys_of_base,
)
from aquifer_storage.domain.ports import ObjectInfo, ObjectStore

logger = structlog.get_logger(__name__)

_LARGEST_CLAIM_BYTES = 512
"""What a failed copy puts in the place of its manifest is smaller; real manifests are larger and need not be read."""


@dataclass(slots=True, kw_only=True)
class _Group:
    """The objects of one segment."""

    base: str
    manifest_bytes: int | None = None
    newest_ms: int = 0
    keys: list[str] = field(default_factory=list)

    def add(self, listed: ObjectInfo) -> None:
        self.keys.append(listed.key)
        self.newest_ms = max(self.newest_ms, listed.modified_ms)
        if listed.key.endswith(MANIFEST_SUFFIX):
            self.manifest_bytes = listed.size_bytes


class LeftoverSweeper:
    """Sweeps by age: a copy that another replica works on is younger than any copy may take.

    A segment with a manifest is never touched, whatever else of it is missing; nor are keys that name no segment's object.
    """

    def __init__(
        self, objects: ObjectStore, keys: ObjectKeys, *, older_than_s: float, clock: Clock
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._older_than_s = older_than_s
        self._clock = clock

    async def sweep(self) -> int:
        """Sweep once; returns how many objects were deleted. Idempotent.

        Raises:
            RemoteStorageUnavailableError: the store does not answer; the next sweep begins anew.
        """
        newest_ms = self._clock.now_ms() - int(self._older_than_s * 1000)
        swept = 0
        async for group in self._groups():
            if group.newest_ms <= newest_ms and await self._is_leftover(group):
                await self._objects.delete(keys_of_base(group.base).all)
                swept += len(group.keys)
                logger.info("leftovers_swept", keys=group.keys)
        return swept

    async def _groups(self) -> AsyncIterator[_Group]:
        """Objects by segment; those of one segment follow each other in the order of keys."""
        group: _Group | None = None
        async for listed in self._objects.list_objects(self._keys.prefix):
            base = self._keys.base_of(listed.key)
            if base is None:
                continue
            if group is None or group.base != base:
                if group is not None:
                    yield group
                group = _Group(base=base)
            group.add(listed)
        if group is not None:
            yield group

    async def _is_leftover(self, group: _Group) -> bool:
        if group.manifest_bytes is None:
            return True
        if group.manifest_bytes > _LARGEST_CLAIM_BYTES:
            return False
        key = keys_of_base(group.base).manifest
        try:
            return decode_manifest(await self._objects.get(key), key) is None
        except RemoteResourceNotFoundError:
            return False  # changed since it was listed: the next sweep will tell
