"""Reads and writes manifests."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import (
    ConcurrentUpdateError,
    CorruptSegmentError,
    RemoteResourceNotFoundError,
)
from aquifer_core.segment import RemoteLogSegmentMetadata, StoredSegment

from aquifer_storage.domain.in_order import in_order
from aquifer_storage.domain.loading_cache import LoadingCache
from aquifer_storage.domain.manifest import Manifest
from aquifer_storage.domain.manifest_codec import (
    decode_manifest,
    encode_abandoned,
    encode_manifest,
)
from aquifer_storage.domain.object_key import (
    MANIFEST_SUFFIX,
    ObjectKeys,
    SegmentKeys,
    keys_of_manifest,
)
from aquifer_storage.domain.ports import ObjectStore

_PARSED_BYTES: Final = 8 << 10
"""Memory that a manifest takes besides the index bundle in it, about."""
_READS_AT_ONCE: Final = 16
"""Of manifests in a listing. A bucket of 100 000 segments is listed in minutes, not in hours, where a request takes 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredManifest:
    """A manifest and how large its object is."""

    manifest: Manifest
    keys: SegmentKeys
    size_bytes: int

    def stored_segment(self) -> StoredSegment:
        """Return it as the role's contract has it."""
        return self.manifest.stored_segment(self.keys, self.size_bytes)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, about."""
        return _PARSED_BYTES + len(self.manifest.bundle or b"")


def segment_not_found(metadata: RemoteLogSegmentMetadata) -> RemoteResourceNotFoundError:
    """Return the error for a segment that is not in the store."""
    return RemoteResourceNotFoundError(
        f"segment {metadata.segment_id} is not in the store",
        metadata={"segmentId": str(metadata.segment_id.id)},
    )


class ManifestStore:
    """The manifests of a store, the ones read last kept in memory, within a number of bytes."""

    def __init__(self, objects: ObjectStore, keys: ObjectKeys, cache_bytes: int) -> None:
        self._objects = objects
        self._keys = keys
        self._cache: LoadingCache[str, StoredManifest] = LoadingCache(
            cache_bytes, weigh=lambda stored: stored.memory_bytes
        )

    async def get(self, metadata: RemoteLogSegmentMetadata) -> StoredManifest:
        """Return a segment's manifest.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store, or its copy was abandoned.
            CorruptSegmentError: the manifest is damaged or another segment's.
        """
        keys = self._keys.of(metadata)
        try:
            stored = await self._cache.get(keys.manifest, lambda: self.read(keys))
        except RemoteResourceNotFoundError as error:
            raise segment_not_found(metadata) from error
        if stored.manifest.metadata.segment_id != metadata.segment_id:
            raise CorruptSegmentError(
                f"manifest {keys.manifest} belongs to {stored.manifest.metadata.segment_id}",
                metadata={"segmentId": str(metadata.segment_id.id)},
            )
        return stored

    async def read(self, keys: SegmentKeys) -> StoredManifest:
        """Return a manifest as the store has it now.

        Raises:
            RemoteResourceNotFoundError: it is not there, or the copy was abandoned.
            CorruptSegmentError: it is damaged.
        """
        return (await self.read_encoded(keys))[1]

    async def read_encoded(self, keys: SegmentKeys) -> tuple[bytes, StoredManifest]:
        """Return a manifest's bytes and what they say; see `read`."""
        data = await self._objects.get(keys.manifest)
        manifest = decode_manifest(data, keys.manifest)
        if manifest is None:
            raise RemoteResourceNotFoundError(f"the copy of {keys.manifest} failed")
        return data, StoredManifest(manifest=manifest, keys=keys, size_bytes=len(data))

    async def find(self, metadata: RemoteLogSegmentMetadata) -> StoredManifest | None:
        """Return the manifest of a segment that was copied before; none when it was not.

        Raises:
            ConcurrentUpdateError: a copy of this segment id failed.
        """
        keys = self._keys.of(metadata)
        try:
            data = await self._objects.get(keys.manifest)
        except RemoteResourceNotFoundError:
            return None
        manifest = decode_manifest(data, keys.manifest)
        if manifest is None:
            raise ConcurrentUpdateError(
                f"a copy of segment {metadata.segment_id} failed; delete the segment and copy with a new segment id"
            )
        return StoredManifest(manifest=manifest, keys=keys, size_bytes=len(data))

    async def create(self, manifest: Manifest) -> StoredManifest:
        """Write a manifest unless there is one, and return the one that is there then.

        Raises:
            ConcurrentUpdateError: a copy of this segment id failed.
        """
        keys = self._keys.of(manifest.metadata)
        data = encode_manifest(manifest)
        if not await self._objects.create(keys.manifest, data):
            found = await self.find(manifest.metadata)
            if found is not None:
                return found
            raise ConcurrentUpdateError(
                f"segment {manifest.metadata.segment_id} is being deleted; copy with a new segment id"
            )
        return StoredManifest(manifest=manifest, keys=keys, size_bytes=len(data))

    async def replace(
        self, metadata: RemoteLogSegmentMetadata, data: bytes, *, found: bytes
    ) -> bool:
        """Write a manifest in place of the one that was found: only for another wrapping of the same data key.

        Returns:
            False when another or none is there by now, or this very one after an answer was lost.
        """
        written = await self._objects.replace(self._keys.of(metadata).manifest, data, found=found)
        self.forget(metadata)
        return bool(written)

    async def abandon(self, keys: SegmentKeys, reason: str) -> bool:
        """Put a mark in the manifest's place; every copy of the segment fails from then on, until the segment is deleted.

        Returns:
            Whether the mark of anybody is there; false when a copy has succeeded.

        Raises:
            RemoteResourceNotFoundError: what was there has just been deleted.
            CorruptSegmentError: it is damaged.
        """
        if await self._objects.size_bytes(keys.manifest) is None and await self._objects.create(
            keys.manifest, encode_abandoned(reason)
        ):
            return True
        return await self.is_abandoned(keys)

    async def is_abandoned(self, keys: SegmentKeys) -> bool:
        """Whether in the manifest's place there is only the mark of a failed copy.

        Raises:
            RemoteResourceNotFoundError: there is nothing.
            CorruptSegmentError: it is damaged.
        """
        return decode_manifest(await self._objects.get(keys.manifest), keys.manifest) is None

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Drop what is in memory of a segment."""
        self._cache.forget(self._keys.of(metadata).manifest)

    async def list(self, prefix: str) -> AsyncGenerator[StoredManifest, None]:
        """Yield every manifest whose key begins with a prefix, in the order of keys.

        Raises:
            CorruptSegmentError: some manifests are damaged; the others were yielded before.
        """
        damaged: list[CorruptSegmentError] = []
        reads = in_order(self._keys_of_manifests(prefix), self._read_listed, _READS_AT_ONCE)
        async with aclosing(reads):
            async for found in reads:
                if isinstance(found, CorruptSegmentError):
                    damaged.append(found)
                elif found is not None:
                    yield found
        if damaged:
            raise CorruptSegmentError(
                f"{len(damaged)} manifests are damaged, the first: {damaged[0].message}"
            )

    async def _keys_of_manifests(self, prefix: str) -> AsyncIterator[str]:
        async for listed in self._objects.list_objects(self._keys.prefix + prefix):
            if listed.key.endswith(MANIFEST_SUFFIX):
                yield listed.key

    async def _read_listed(self, key: str) -> StoredManifest | CorruptSegmentError | None:
        try:
            return await self.read(keys_of_manifest(key))
        except RemoteResourceNotFoundError:
            return None  # deleted since it was listed
        except CorruptSegmentError as error:
            return error

    async def close(self) -> None:
        """End the reads under way."""
        await self._cache.close()
