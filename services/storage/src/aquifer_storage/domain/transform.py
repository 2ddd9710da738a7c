"""Makes the stored form of chunks and index parts, and the original again."""

from dataclasses import dataclass

from aquifer_core.errors import CorruptSegmentError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.ids import KafkaUuid

from aquifer_storage.domain.chunker import Chunk
from aquifer_storage.domain.envelope import Envelope
from aquifer_storage.domain.manifest import BundlePart
from aquifer_storage.domain.ports import StoredChunk
from aquifer_storage.domain.segment_cipher import TAG_BYTES, Place, PlaceKind, SegmentCipher
from aquifer_storage.domain.zstd_codec import DEFAULT_LEVEL, NO_CODEC, ZSTD, compress, decompress

_PART_NUMBERS = {part: number for number, part in enumerate(BundlePart)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTransform:
    """Compresses and seals for one segment, and back. Its methods take time and are called in threads.

    Attributes:
        segment_id: the segment.
        cipher: seals; none when the segment is not encrypted.
        envelope: what the manifest says of the cipher; of a new copy, what it would have said at its begin.
        codec: compression of new chunks. What is read says itself whether it is compressed.
        level: of the compression.
    """

    segment_id: KafkaUuid
    cipher: SegmentCipher | None = None
    envelope: Envelope | None = None
    codec: str = NO_CODEC
    level: int = DEFAULT_LEVEL

    @property
    def is_identity(self) -> bool:
        """Whether two copies of one log are stored alike whoever makes them."""
        return self.cipher is None and self.codec == NO_CODEC

    @property
    def overhead_bytes(self) -> int:
        """Most bytes by which the stored form of a chunk or part is longer than the original."""
        return 0 if self.cipher is None else TAG_BYTES

    def encode(self, number: int, chunk: Chunk) -> StoredChunk:
        """Make the stored form of a chunk. Call it once for each number.

        A chunk of which most was compressed by its producer is not compressed again.
        """
        pieces, is_compressed = chunk.pieces, False
        if self.codec == ZSTD and 2 * chunk.compressed_bytes <= chunk.size_bytes:
            compressed = compress(pieces, self.level)
            if compressed is not None:
                pieces, is_compressed = list(compressed), True
        if self.cipher is None:
            return StoredChunk(pieces=pieces, is_compressed=is_compressed)
        place = Place(kind=PlaceKind.CHUNK, number=number, is_compressed=is_compressed)
        sealed = self.cipher.seal(place, pieces)
        return StoredChunk(pieces=[sealed], is_compressed=is_compressed, is_encrypted=True)

    def decode(self, number: int, entry: RemoteLogIndexEntry, data: bytes) -> bytes:
        """Make the original bytes of a chunk.

        Raises:
            CorruptSegmentError: the bytes are not this chunk of this segment.
        """
        data_id = entry.data_id
        if data_id.is_encrypted != (self.cipher is not None):
            raise self._damaged(number, entry, "it contradicts the manifest about encryption")
        opened: bytes | None = data
        if self.cipher is not None:
            place = Place(kind=PlaceKind.CHUNK, number=number, is_compressed=data_id.is_compressed)
            opened = self.cipher.open(place, data)
        if opened is not None and data_id.is_compressed:
            opened = decompress(opened, entry.data_length_bytes)
        if opened is None:
            raise self._damaged(number, entry, "its bytes cannot be opened")
        return opened

    def seal_part(self, part: BundlePart, data: bytes) -> Buffer:
        """Make the stored form of an index part. Call it once for each part."""
        return data if self.cipher is None else self.cipher.seal(_place_of(part), [data])

    def open_part(self, part: BundlePart, data: bytes) -> bytes:
        """Make the original bytes of an index part.

        Raises:
            CorruptSegmentError: the bytes are not this part of this segment.
        """
        opened = data if self.cipher is None else self.cipher.open(_place_of(part), data)
        if opened is None:
            raise CorruptSegmentError(
                f"segment {self.segment_id}: {part} of the index bundle cannot be opened",
                metadata={"segmentId": str(self.segment_id)},
            )
        return opened

    def _damaged(self, number: int, entry: RemoteLogIndexEntry, what: str) -> CorruptSegmentError:
        position = entry.data_id.position
        return CorruptSegmentError(
            f"segment {self.segment_id}, chunk {number} at position {position} of its object: {what}",
            metadata={
                "segmentId": str(self.segment_id),
                "chunk": str(number),
                "position": str(position),
            },
        )


def _place_of(part: BundlePart) -> Place:
    return Place(kind=PlaceKind.INDEX_PART, number=_PART_NUMBERS[part])
