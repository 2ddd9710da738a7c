"""A segment that chunks can be read from."""

from dataclasses import dataclass

from aquifer_core.errors import CorruptSegmentError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.chunk_cache import ChunkKey
from aquifer_storage.domain.transform import SegmentTransform


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableSegment:
    """A segment, its chunk table and what opens its chunks."""

    metadata: RemoteLogSegmentMetadata
    table: RemoteLogIndex
    transform: SegmentTransform

    def key(self, number: int) -> ChunkKey:
        """Return the key of a chunk."""
        return ChunkKey(self.metadata.segment_id.id, number)

    def size_bytes(self, number: int) -> int:
        """Return the original size of a chunk."""
        return self.table.entries[number].data_length_bytes

    def end_position(self, number: int) -> int:
        """Return the position after a chunk in the original log."""
        return self.table.start_position(number) + self.size_bytes(number)

    def is_transformed(self, number: int) -> bool:
        """Whether a chunk is stored otherwise than it was."""
        data_id = self.table.entries[number].data_id
        return data_id.is_compressed or data_id.is_encrypted

    def verified_chunk(self, number: int, data: bytes) -> bytes:
        """Check stored bytes against the chunk table and return the chunk's original bytes.

        Takes time when the chunk is transformed; call it in a thread then.

        Raises:
            CorruptSegmentError: they are damaged, or fewer than there should be.
        """
        entry = self.table.entries[number]
        data_id = entry.data_id
        if len(data) != data_id.stored_length_bytes:
            raise self._damaged(
                number, f"{data_id.stored_length_bytes} bytes expected, {len(data)} found"
            )
        computed = crc32c(data)
        if computed != data_id.crc32c:
            raise self._damaged(
                number, f"crc {data_id.crc32c:#010x} expected, {computed:#010x} found"
            )
        chunk = self.transform.decode(number, entry, data)
        if len(chunk) != entry.data_length_bytes:
            raise self._damaged(
                number, f"{entry.data_length_bytes} bytes expected, {len(chunk)} opened"
            )
        return chunk

    def _damaged(self, number: int, what: str) -> CorruptSegmentError:
        segment_id = str(self.metadata.segment_id.id)
        position = self.table.entries[number].data_id.position
        return CorruptSegmentError(
            f"segment {segment_id}, chunk {number} at position {position} of its object: {what}",
            metadata={"segmentId": segment_id, "chunk": str(number), "position": str(position)},
        )
