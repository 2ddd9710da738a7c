"""The transform that stores chunks as they are."""

from collections.abc import Sequence
from typing import Final

from aquifer_core.errors import ErrorReason, PreconditionError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.ports import StoredChunk

NO_CODEC: Final = "none"


class IdentityTransform:
    """Stores chunks as they are; implements `ports.ChunkTransform`."""

    codec = NO_CODEC
    overhead_bytes = 0

    def encode(self, metadata: RemoteLogSegmentMetadata, pieces: Sequence[Buffer]) -> StoredChunk:
        """Return the pieces, not copied."""
        return StoredChunk(pieces=pieces)

    def decode(self, segment_id: KafkaUuid, data_id: RemoteDataId, data: bytes) -> bytes:
        """Return the data.

        Raises:
            PreconditionError: the chunk is compressed or encrypted.
        """
        if data_id.is_encrypted or data_id.is_compressed:
            what = "encrypted" if data_id.is_encrypted else "compressed"
            raise PreconditionError(
                f"segment {segment_id} is {what}, and this service is not set up to read that",
                reason=ErrorReason.SCHEMA_MISMATCH,
                metadata={"segmentId": str(segment_id), "found": what, "expected": NO_CODEC},
            )
        return data
