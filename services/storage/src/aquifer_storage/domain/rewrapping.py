"""Wraps data keys again, with the active key, without touching data.

A manifest is the one object that is ever written twice with other bytes, and only in place of the one that was read: a deletion meanwhile
would leave a manifest without its log. That is safe: both versions wrap the same data key, so
whoever reads or has cached the older one reads right as long as its key is in the ring. Retire a key when no manifest names it.
"""

from dataclasses import dataclass
from typing import Final

import structlog
from aquifer_core.errors import ConcurrentUpdateError, RemoteResourceNotFoundError
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.envelope import Envelope
from aquifer_storage.domain.manifest_codec import with_envelope
from aquifer_storage.domain.manifest_store import ManifestStore, segment_not_found
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.ports import ObjectStore
from aquifer_storage.domain.segment_transforms import SegmentTransforms

logger = structlog.get_logger(__name__)

_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrapped:
    """What was done; no key ids when the segment is not encrypted."""

    previous_key_id: str | None = None
    key_id: str | None = None

    @property
    def is_rewrapped(self) -> bool:
        """Whether the manifest was written."""
        return self.previous_key_id != self.key_id


class Rewrapper:
    """Moves manifests to the active key."""

    def __init__(
        self,
        objects: ObjectStore,
        keys: ObjectKeys,
        manifests: ManifestStore,
        transforms: SegmentTransforms,
    ) -> None:
        self._objects = objects
        self._keys = keys
        self._manifests = manifests
        self._transforms = transforms

    async def rewrap(self, metadata: RemoteLogSegmentMetadata) -> Rewrapped:
        """Wrap a segment's data key with the active key. Idempotent.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            CorruptSegmentError: its manifest is damaged.
            PreconditionError: a key is not there.
            ConcurrentUpdateError: others rewrap it again and again.
        """
        for _ in range(_ATTEMPTS):
            done = await self._attempt(metadata)
            if done is not None:
                return done
        raise ConcurrentUpdateError(
            f"the manifest of segment {metadata.segment_id} is replaced by others again and again"
        )

    async def _attempt(self, metadata: RemoteLogSegmentMetadata) -> Rewrapped | None:
        """Rewrap the manifest as it is now; none when it was replaced or deleted meanwhile."""
        try:
            data, stored = await self._manifests.read_encoded(self._keys.of(metadata))
        except RemoteResourceNotFoundError as error:
            raise segment_not_found(metadata) from error
        envelope = stored.manifest.encryption
        if envelope is None:
            return Rewrapped()
        segment_id = metadata.segment_id.id
        ring = self._transforms.ring_for(segment_id, envelope)
        previous = envelope.key.key_id
        if await ring.active_key_id() == previous:
            return Rewrapped(previous_key_id=previous, key_id=previous)
        data_key = await self._transforms.unwrap(segment_id, envelope)
        wrapped = await ring.wrap(data_key)
        renewed = with_envelope(data, Envelope(cipher=envelope.cipher, key=wrapped))
        if not await self._manifests.replace(metadata, renewed, found=data):
            return None
        await self._withdraw_if_deleted(metadata)
        logger.info(
            "segment_rewrapped",
            segment_id=str(metadata.segment_id),
            previous_key_id=previous,
            key_id=wrapped.key_id,
        )
        return Rewrapped(previous_key_id=previous, key_id=wrapped.key_id)

    async def _withdraw_if_deleted(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete the manifest again when another process deleted the segment meanwhile, in a store without conditional writes.

        A deletion takes manifest, indexes, log and then the manifest once more. So either it takes this one as well, or the log is
        gone by now.
        """
        keys = self._keys.of(metadata)
        if await self._objects.size_bytes(keys.log) is None:
            await self._objects.delete([keys.manifest])
            raise segment_not_found(metadata)
