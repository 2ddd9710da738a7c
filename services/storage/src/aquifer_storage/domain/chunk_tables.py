"""Chunk tables: the remote log indexes of the segments that are read."""

import structlog
from aquifer_core.errors import (
    CorruptDataError,
    CorruptSegmentError,
    RemoteResourceNotFoundError,
)
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.custom_metadata import decode_chunks, decode_location
from aquifer_storage.domain.index_bundle import opened_part
from aquifer_storage.domain.index_parts import IndexParts
from aquifer_storage.domain.loading_cache import LoadingCache
from aquifer_storage.domain.manifest import BundlePart
from aquifer_storage.domain.opened_segments import OpenedSegments
from aquifer_storage.domain.readable_segment import ReadableSegment
from aquifer_storage.domain.transform import SegmentTransform

logger = structlog.get_logger(__name__)


class ChunkTables:
    """Loads chunk tables and keeps those used last in memory.

    The custom metadata of a segment is its table, if that is short, or says where it lies, so that one read gets it. Without, the
    manifest says; always so for encrypted segments, whose manifest has the data key.
    """

    def __init__(self, parts: IndexParts, opened: OpenedSegments, capacity_chunks: int) -> None:
        self._parts = parts
        self._opened = opened
        self._cache: LoadingCache[RemoteLogSegmentId, ReadableSegment] = LoadingCache(
            capacity_chunks, weigh=lambda segment: len(segment.table) + 1
        )

    async def get(self, metadata: RemoteLogSegmentMetadata) -> ReadableSegment:
        """Return a segment with its chunk table.

        Raises:
            RemoteResourceNotFoundError: the segment is not in the store.
            CorruptSegmentError: the table is damaged or not this segment's.
            PreconditionError: the key that wrapped the segment's data key is not there.
        """
        return await self._cache.get(metadata.segment_id, lambda: self._load(metadata))

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Drop a table from memory."""
        self._cache.forget(metadata.segment_id)

    async def close(self) -> None:
        """End the reads under way."""
        await self._cache.close()

    async def _load(self, metadata: RemoteLogSegmentMetadata) -> ReadableSegment:
        told = decode_chunks(metadata)
        if told is not None:
            return _unencrypted(metadata, told)
        location = decode_location(metadata.custom_metadata)
        if location is not None:
            try:
                data = await self._parts.read(metadata, location.position, location.size_bytes)
                return _unencrypted(metadata, parse_table(metadata, data))
            except (
                CorruptDataError,
                RemoteResourceNotFoundError,
            ) as error:  # custom metadata may be wrong; the manifest decides
                logger.warning(
                    "chunk_table_is_not_where_custom_metadata_says",
                    segment_id=str(metadata.segment_id),
                    error=error.message,
                )
        opened = await self._opened.get(metadata)
        part = opened.manifest.parts[BundlePart.REMOTE_LOG_INDEX]
        stored = await self._parts.get(metadata, opened.manifest, part)
        data = opened_part(opened.transform, BundlePart.REMOTE_LOG_INDEX, part, stored)
        table = parse_table(metadata, data)
        return ReadableSegment(metadata=metadata, table=table, transform=opened.transform)


def _unencrypted(metadata: RemoteLogSegmentMetadata, table: RemoteLogIndex) -> ReadableSegment:
    """Return a segment whose table was found without the manifest, which says how to decrypt."""
    if any(entry.data_id.is_encrypted for entry in table.entries):
        raise _corrupt(metadata, "chunks are encrypted, but the remote log index is not")
    transform = SegmentTransform(segment_id=metadata.segment_id.id)
    return ReadableSegment(metadata=metadata, table=table, transform=transform)


def parse_table(metadata: RemoteLogSegmentMetadata, data: bytes) -> RemoteLogIndex:
    """Parse a chunk table and check that it is the segment's.

    Raises:
        CorruptSegmentError: it is damaged or another segment's.
    """
    segment_id = metadata.segment_id.id
    try:
        table = RemoteLogIndex.parse(data)
    except CorruptDataError as error:
        raise _corrupt(metadata, error.message) from error
    if any(entry.data_id.segment_id != segment_id for entry in table.entries):
        raise _corrupt(metadata, "the remote log index belongs to another segment")
    if table.data_size_bytes != metadata.segment_size_bytes:
        raise _corrupt(
            metadata,
            f"the remote log index covers {table.data_size_bytes} bytes of a log of {metadata.segment_size_bytes}",
        )
    position = 0
    for number, entry in enumerate(table.entries):
        if entry.data_id.position != position:
            raise _corrupt(metadata, f"chunk {number} does not follow the one before it")
        position += entry.data_id.stored_length_bytes
    return table


def _corrupt(metadata: RemoteLogSegmentMetadata, what: str) -> CorruptSegmentError:
    segment_id = str(metadata.segment_id.id)
    return CorruptSegmentError(f"segment {segment_id}: {what}", metadata={"segmentId": segment_id})
