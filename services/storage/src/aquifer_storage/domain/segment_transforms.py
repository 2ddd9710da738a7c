"""Data keys of segments: new ones for copies, unwrapped ones for reads."""

import secrets

from aquifer_core.errors import ErrorReason, PreconditionError
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.envelope import CIPHER, DATA_KEY_BYTES, Envelope, key_unavailable
from aquifer_storage.domain.loading_cache import LoadingCache
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import KeyRing
from aquifer_storage.domain.segment_cipher import SegmentCipher
from aquifer_storage.domain.transform import SegmentTransform
from aquifer_storage.domain.zstd_codec import NO_CODEC


class SegmentTransforms:
    """Makes the transform of a segment; unwrapped data keys used last are kept in memory."""

    def __init__(self, key_ring: KeyRing | None, options: StorageOptions) -> None:
        self.key_ring = key_ring
        self._options = options
        self._ciphers: LoadingCache[tuple[KafkaUuid, bytes], SegmentCipher] = LoadingCache(
            options.data_key_cache_entries
        )

    @property
    def encryption(self) -> str:
        """Encryption of new segments."""
        return NO_CODEC if self.key_ring is None else CIPHER

    def is_identity(self, topic: str) -> bool:
        """Whether two copies of one log of a topic are stored alike whoever makes them."""
        return self.key_ring is None and self._options.of_topic(topic).codec == NO_CODEC

    async def begin(self, metadata: RemoteLogSegmentMetadata) -> SegmentTransform:
        """Return the transform of a new copy, with a data key of its own.

        Raises:
            PreconditionError: the active key cannot be used.
        """
        segment_id = metadata.segment_id.id
        topic = self._options.of_topic(metadata.topic_id_partition.topic)
        cipher = envelope = None
        if self.key_ring is not None:
            data_key = secrets.token_bytes(DATA_KEY_BYTES)
            envelope = Envelope(key=await self.key_ring.wrap(data_key))
            cipher = SegmentCipher(data_key, segment_id)
        return SegmentTransform(
            segment_id=segment_id,
            cipher=cipher,
            envelope=envelope,
            codec=topic.codec,
            level=topic.zstd_level,
        )

    async def envelope_of(self, transform: SegmentTransform) -> Envelope | None:
        """Return the envelope for the manifest of a copy, with the data key wrapped by the key that is active now.

        A copy may take hours. By its end the key that was active at its begin may have been retired: no manifest named it.

        Raises:
            PreconditionError: the active key cannot be used.
        """
        begun, cipher, ring = transform.envelope, transform.cipher, self.key_ring
        if begun is None or cipher is None or ring is None:
            return begun
        if await ring.active_key_id() == begun.key.key_id:
            return begun
        return Envelope(key=await ring.wrap(cipher.data_key))

    async def open(self, segment_id: KafkaUuid, envelope: Envelope | None) -> SegmentTransform:
        """Return the transform that reads a segment.

        Raises:
            PreconditionError: the key that wrapped the segment's data key is not there.
        """
        if envelope is None:
            return SegmentTransform(segment_id=segment_id)
        cipher = await self._ciphers.get(
            (segment_id, envelope.key.data), lambda: self._load(segment_id, envelope)
        )
        return SegmentTransform(segment_id=segment_id, cipher=cipher, envelope=envelope)

    async def unwrap(self, segment_id: KafkaUuid, envelope: Envelope) -> bytes:
        """Return a segment's data key.

        Raises:
            PreconditionError: the key that wrapped it is not there, or the cipher is not known.
        """
        if envelope.cipher != CIPHER:
            raise PreconditionError(
                f"segment {segment_id} is sealed with {envelope.cipher!r}; this service reads {CIPHER!r}",
                reason=ErrorReason.SCHEMA_MISMATCH,
                metadata={"found": envelope.cipher, "expected": CIPHER},
            )
        return await self.ring_for(segment_id, envelope).unwrap(envelope.key)

    def ring_for(self, segment_id: KafkaUuid, envelope: Envelope) -> KeyRing:
        """Return the key ring.

        Raises:
            PreconditionError: there is none.
        """
        if self.key_ring is None:
            raise key_unavailable(
                envelope.key.key_id,
                f"segment {segment_id} is encrypted with key {envelope.key.key_id!r}, "
                "and this service has no key ring",
            )
        return self.key_ring

    async def close(self) -> None:
        """End what is under way."""
        await self._ciphers.close()
        if self.key_ring is not None:
            await self.key_ring.close()

    async def _load(self, segment_id: KafkaUuid, envelope: Envelope) -> SegmentCipher:
        return SegmentCipher(await self.unwrap(segment_id, envelope), segment_id)
