"""Deletes objects of copies that failed: those that a crash left, and those that the store wrote after their deletion.

A store may carry a request out that its sender has given up, also after the deletion that followed. Nobody asks for such an object
again, and metadata has forgotten its segment. What tells is that it has no manifest, and its age: no copy takes that long.

It takes two sweeps, so that no copy can come in between and no listing needs to be up to date. The first takes the manifest's place,
which the store refuses when there is one and which makes a copy fail that would still write it, and deletes the rest. The mark
itself goes, with whatever came meanwhile, when it is old as well.
"""

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field

import structlog
from aquifer_core.errors import (
    CorruptSegmentError,
    PreconditionError,
    RemoteResourceNotFoundError,
)

from aquifer_storage.domain.manifest_codec import LARGEST_MARK_BYTES
from aquifer_storage.domain.manifest_store import ManifestStore
from aquifer_storage.domain.object_key import MANIFEST_SUFFIX, ObjectKeys, SegmentKeys, keys_of_base
from aquifer_storage.domain.ports import ObjectInfo, ObjectStore, StoreClock

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Group:
    """The listed objects of one segment."""

    keys: SegmentKeys
    manifest_bytes: int | None = None
    newest_ms: int = 0
    found: list[str] = field(default_factory=list)

    def add(self, listed: ObjectInfo) -> None:
        self.found.append(listed.key)
        self.newest_ms = max(self.newest_ms, listed.modified_ms)
        if listed.key.endswith(MANIFEST_SUFFIX):
            self.manifest_bytes = listed.size_bytes


class LeftoverSweeper:
    """Sweeps by age, which is by the store's clock alone.

    A segment with a manifest is never touched, whatever else of it is missing or damaged; nor are keys that name no segment's
    object. Any number of processes may sweep one store.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store_clock: StoreClock,
        keys: ObjectKeys,
        *,
        older_than_s: float,
    ) -> None:
        """Prepares.

        Args:
            objects: the store.
            store_clock: its clock.
            keys: of segments.
            older_than_s: what is older may go; at least twice as long as a copy may take.
        """
        self._objects = objects
        self._store_clock = store_clock
        self._keys = keys
        self._manifests = ManifestStore(objects, keys, cache_bytes=1)
        self._older_than_s = older_than_s

    async def sweep(self) -> int:
        """Sweep once; returns how many listed objects were deleted. Idempotent.

        Raises:
            RemoteStorageUnavailableError: the store does not answer; the next sweep begins anew.
        """
        now_ms = await self._store_clock.store_time_ms()
        if now_ms is None:
            logger.warning("leftovers_not_swept", reason="the store does not tell its time")
            return 0
        newest_ms = now_ms - int(self._older_than_s * 1000)
        swept = 0
        async for group in self._groups():
            if group.newest_ms < newest_ms:
                swept += await self._sweep(group)
        return swept

    async def _groups(self) -> AsyncIterator[_Group]:
        """Objects by segment; those of one segment follow each other in the order of keys."""
        group: _Group | None = None
        async for listed in self._objects.list_objects(self._keys.prefix):
            base = self._keys.base_of(listed.key)
            if base is None:
                continue
            keys = keys_of_base(base)
            if group is None or group.keys != keys:
                if group is not None:
                    yield group
                group = _Group(keys)
            group.add(listed)
        if group is not None:
            yield group

    async def _sweep(self, group: _Group) -> int:
        keys = group.keys
        if group.manifest_bytes is None:
            if not await self._is_sure(group, self._manifests.abandon(keys, "left over")):
                return 0
            await self._objects.delete((keys.log, keys.indexes))
        elif group.manifest_bytes <= LARGEST_MARK_BYTES and await self._is_sure(
            group, self._manifests.is_abandoned(keys)
        ):
            await self._objects.delete((keys.log, keys.indexes, keys.manifest))
        else:
            return 0
        logger.info("leftovers_swept", keys=group.found)
        return len(group.found)

    async def _is_sure(self, group: _Group, is_abandoned: Awaitable[bool]) -> bool:
        """Whether the manifest is only what a failed copy or a sweep has put in its place."""
        try:
            return await is_abandoned
        except RemoteResourceNotFoundError:
            return False  # it went since it was listed: the next sweep will tell
        except (CorruptSegmentError, PreconditionError) as error:
            logger.warning("manifest_not_understood", key=group.keys.manifest, error=error.message)
            return False
