"""The custom metadata that a copy answers with: the segment's chunk table, or where it lies.

It saves the read of the manifest before the first read of a segment, and of a segment with few chunks the read of the table too.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_core.segment import RemoteLogSegmentMetadata

_LOCATION_VERSION: Final = 1
_LOCATION: Final = struct.Struct(">bqi")
_CHUNKS_VERSION: Final = 2
_CHUNKS_HEAD: Final = struct.Struct(">bI")
_CHUNK: Final = struct.Struct(">IIiiIb")
_COMPRESSED: Final = 0x01
_UNKNOWN_MS: Final = -1
MAX_CHUNKS: Final = 4
"""More are not told: 89 bytes, where Kafka accepts 128 and every broker and the metadata service keep them in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogIndexLocation:
    """Where the remote log index lies in the index bundle."""

    position: int
    size_bytes: int

    def encode(self) -> bytes:
        """Encode as version int8, position int64, size int32."""
        return _LOCATION.pack(_LOCATION_VERSION, self.position, self.size_bytes)


def decode_location(custom_metadata: bytes | None) -> RemoteLogIndexLocation | None:
    """Decode where the table lies; none when it does not say so, and then the manifest tells."""
    if custom_metadata is None or len(custom_metadata) != _LOCATION.size:
        return None
    version, position, size_bytes = _LOCATION.unpack(custom_metadata)
    if version != _LOCATION_VERSION or position < 0 or size_bytes <= 0:
        return None
    return RemoteLogIndexLocation(position=position, size_bytes=size_bytes)


def encode_chunks(metadata: RemoteLogSegmentMetadata, table: RemoteLogIndex) -> bytes | None:
    """Encode a table of few chunks that are not sealed; none for others.

    After version int8 and crc int32, the CRC-32C of the segment id and what follows: of each chunk first and last offset from the
    segment's start int32, length in the log int32, stored length int32, CRC-32C of the stored bytes int32, flags int8.
    """
    entries = table.entries
    if not 0 < len(entries) <= MAX_CHUNKS or any(each.data_id.is_encrypted for each in entries):
        return None
    start = metadata.start_offset
    chunks = b"".join(
        _CHUNK.pack(
            entry.first_offset - start,
            entry.last_offset - start,
            entry.data_length_bytes,
            entry.data_id.stored_length_bytes,
            entry.data_id.crc32c,
            _COMPRESSED * entry.data_id.is_compressed,
        )
        for entry in entries
    )
    return _CHUNKS_HEAD.pack(_CHUNKS_VERSION, _checksum(metadata, chunks)) + chunks


def decode_chunks(metadata: RemoteLogSegmentMetadata) -> RemoteLogIndex | None:
    """Decode the table of a segment; none when custom metadata does not have it, and then the manifest tells.

    Timestamps are not in it. The checksum holds the segment id, so that what was made for another segment, by something else or
    damaged is not taken for its table.
    """
    custom = metadata.custom_metadata
    if custom is None or len(custom) <= _CHUNKS_HEAD.size:
        return None
    version, checksum = _CHUNKS_HEAD.unpack_from(custom)
    chunks = custom[_CHUNKS_HEAD.size :]
    if version != _CHUNKS_VERSION or len(chunks) % _CHUNK.size:
        return None
    if checksum != _checksum(metadata, chunks):
        return None
    try:
        table = RemoteLogIndex(_entries(metadata, chunks))
    except CorruptIndexError:
        return None
    return table if table.data_size_bytes == metadata.segment_size_bytes else None


def _entries(metadata: RemoteLogSegmentMetadata, chunks: bytes) -> Iterator[RemoteLogIndexEntry]:
    found = list(_CHUNK.iter_unpack(chunks))
    positions = accumulate((chunk[3] for chunk in found), initial=0)
    for (first, last, length, stored_length, crc, flags), position in zip(
        found, positions, strict=False
    ):
        if stored_length < 0 or flags & ~_COMPRESSED:
            raise CorruptIndexError("a chunk of an unknown kind")
        yield RemoteLogIndexEntry(
            first_offset=metadata.start_offset + first,
            last_offset=metadata.start_offset + last,
            first_timestamp_ms=_UNKNOWN_MS,
            last_timestamp_ms=_UNKNOWN_MS,
            data_length_bytes=length,
            data_id=RemoteDataId(
                segment_id=metadata.segment_id.id,
                position=position,
                stored_length_bytes=stored_length,
                crc32c=crc,
                is_compressed=bool(flags),
            ),
        )


def _checksum(metadata: RemoteLogSegmentMetadata, chunks: bytes) -> int:
    return crc32c(chunks, crc32c(metadata.segment_id.id.raw))
