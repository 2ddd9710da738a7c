"""Manifests with what opens the rest of their segments."""

from dataclasses import dataclass

from aquifer_core.errors import ErrorReason, PreconditionError
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.manifest import Manifest
from aquifer_storage.domain.manifest_store import ManifestStore
from aquifer_storage.domain.segment_transforms import SegmentTransforms
from aquifer_storage.domain.transform import SegmentTransform


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSegment:
    """A manifest and the transform that reads its segment."""

    manifest: Manifest
    transform: SegmentTransform


class OpenedSegments:
    """Opens segments by their manifests."""

    def __init__(self, manifests: ManifestStore, transforms: SegmentTransforms) -> None:
        self._manifests = manifests
        self._transforms = transforms

    async def get(self, metadata: RemoteLogSegmentMetadata) -> OpenedSegment:
        """Return a segment's manifest and transform.

        Another process may have wrapped the data key again since the manifest was cached, and the old key may be gone: then
        the manifest is read once more.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            CorruptSegmentError: the manifest is damaged.
            PreconditionError: the key that wrapped the segment's data key is not there.
        """
        manifest = (await self._manifests.get(metadata)).manifest
        try:
            return await self.open(manifest)
        except PreconditionError as error:
            if error.reason is not ErrorReason.ENCRYPTION_KEY_UNAVAILABLE:
                raise
            self._manifests.forget(metadata)
            fresh = (await self._manifests.get(metadata)).manifest
            if fresh.encryption == manifest.encryption:
                raise
            return await self.open(fresh)

    async def open(self, manifest: Manifest) -> OpenedSegment:
        """Return the transform of a manifest at hand.

        Raises:
            PreconditionError: the key that wrapped the segment's data key is not there.
        """
        segment_id = manifest.metadata.segment_id.id
        transform = await self._transforms.open(segment_id, manifest.encryption)
        return OpenedSegment(manifest=manifest, transform=transform)
