"""Reads the stored parts of the index bundle, wherever it lies."""

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.manifest import Manifest, PartLocation
from aquifer_storage.domain.manifest_store import segment_not_found
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.ports import ObjectStore


class IndexParts:
    """Reads parts as they are stored: from the manifest when the bundle is there, else from the `.indexes` object."""

    def __init__(self, objects: ObjectStore, keys: ObjectKeys) -> None:
        self._objects = objects
        self._keys = keys

    async def get(
        self, metadata: RemoteLogSegmentMetadata, manifest: Manifest, part: PartLocation
    ) -> bytes:
        """Return the stored bytes of a part, fewer when the object ends before.

        Raises:
            RemoteResourceNotFoundError: the `.indexes` object is not in the store.
        """
        if manifest.bundle is not None:
            return manifest.bundle[part.position : part.position + part.size_bytes]
        return await self.read(metadata, part.position, part.size_bytes)

    async def read(
        self, metadata: RemoteLogSegmentMetadata, position: int, size_bytes: int
    ) -> bytes:
        """Return bytes of the `.indexes` object; see `get`."""
        if not size_bytes:
            return b""
        try:
            return await self._objects.get(self._keys.of(metadata).indexes, position, size_bytes)
        except RemoteResourceNotFoundError as error:
            raise segment_not_found(metadata) from error
