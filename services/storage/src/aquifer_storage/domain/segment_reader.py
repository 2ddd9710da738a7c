"""Reads segments: ranges of positions, whole record batches, indexes."""

from collections.abc import AsyncGenerator

import structlog
from aquifer_core.errors import (
    AquiferError,
    ErrorReason,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PositionOutOfRangeError,
    RemoteResourceNotFoundError,
)
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata

from aquifer_storage.domain.chunk_reader import ChunkReader
from aquifer_storage.domain.chunk_tables import ChunkTables
from aquifer_storage.domain.cpu_threads import CpuThreads
from aquifer_storage.domain.index_bundle import PART_OF_INDEX, opened_part
from aquifer_storage.domain.index_parts import IndexParts
from aquifer_storage.domain.opened_segments import OpenedSegments
from aquifer_storage.domain.readable_segment import ReadableSegment
from aquifer_storage.domain.task_owner import TaskOwner

logger = structlog.get_logger(__name__)


class SegmentReader:
    """The reading half of the RemoteStorageManager; see that for the contracts."""

    def __init__(
        self,
        parts: IndexParts,
        opened: OpenedSegments,
        tables: ChunkTables,
        chunks: ChunkReader,
        *,
        threads: CpuThreads,
    ) -> None:
        self._parts = parts
        self._opened = opened
        self._threads = threads
        self._tables = tables
        self._chunks = chunks
        self._crossings = TaskOwner()

    async def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None
    ) -> AsyncGenerator[memoryview, None]:
        """Yield the log's bytes of a range of positions, chunk by chunk."""
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise InvalidRequestError(
                f"positions {start_position} to {end_position} are not a range",
                reason=ErrorReason.INVALID_OFFSET_RANGE,
            )
        segment = await self._open(metadata)
        size_bytes = segment.table.data_size_bytes
        if start_position >= size_bytes:
            raise PositionOutOfRangeError(
                f"position {start_position} is past the end of segment {metadata.segment_id.id}, "
                f"which has {size_bytes} bytes",
                metadata={"position": str(start_position), "sizeBytes": str(size_bytes)},
            )
        end = size_bytes if end_position is None else min(end_position + 1, size_bytes)
        numbers = segment.table.chunks_between(start_position, end - 1)
        for number in numbers:
            # Without an end nobody knows how much the reader wants: brokers stop early (K-1.1).
            last_wanted = number if end_position is None else numbers[-1]
            base = segment.table.start_position(number)
            async with self._chunks.open(segment, number, last_wanted) as chunk:
                yield memoryview(chunk.data)[max(start_position - base, 0) : end - base]

    async def fetch_records(
        self,
        metadata: RemoteLogSegmentMetadata,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        next_segment: RemoteLogSegmentMetadata | None = None,
    ) -> AsyncGenerator[tuple[int, memoryview], None]:
        """Yield whole record batches from the one that holds an offset, or the next, with their positions in the log."""
        if max_bytes <= 0:
            raise InvalidRequestError(f"max_bytes is {max_bytes}; it must be positive")
        if not metadata.start_offset <= fetch_offset <= metadata.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {fetch_offset} is outside segment {metadata.segment_id.id}, "
                f"which holds {metadata.start_offset} to {metadata.end_offset}",
                metadata={"offset": str(fetch_offset)},
            )
        segment = await self._open(metadata)
        table = segment.table
        number = table.find_by_offset(fetch_offset)
        left_bytes = max_bytes
        while number is not None and number < len(table) and left_bytes > 0:
            last_position = table.start_position(number) + left_bytes - 1
            last_wanted = table.chunks_between(table.start_position(number), last_position)[-1]
            async with self._chunks.open(segment, number, last_wanted) as chunk:
                if next_segment is not None and self._chunks.nears_end(segment, number):
                    self._crossings.start(self._cross_into(next_segment, segment, number))
                    next_segment = None
                start, end = chunk.batches.choose(
                    fetch_offset,
                    left_bytes,
                    min_one_batch=min_one_batch and left_bytes == max_bytes,
                )
                if end > start:
                    yield table.start_position(number) + start, memoryview(chunk.data)[start:end]
                if end < len(chunk.data):
                    return
            left_bytes -= end - start
            number += 1

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return a whole index, checked against the manifest."""
        opened = await self._opened.get(metadata)
        part = PART_OF_INDEX[index_type]
        location = opened.manifest.parts.get(part)
        if location is None:
            raise RemoteResourceNotFoundError(
                f"segment {metadata.segment_id.id} has no {part}",
                reason=ErrorReason.INDEX_NOT_FOUND,
                metadata={
                    "segmentId": str(metadata.segment_id.id),
                    "indexType": index_type.name,
                },
            )
        data = await self._parts.get(metadata, opened.manifest, location)
        return await self._threads.run(opened_part, opened.transform, part, location, data)

    async def close(self) -> None:
        """End the read-ahead into next segments."""
        await self._crossings.close()

    async def _cross_into(
        self, metadata: RemoteLogSegmentMetadata, before: ReadableSegment, number: int
    ) -> None:
        """Read the beginning of the segment that a sequential reader reaches next."""
        try:
            self._chunks.begin(await self._open(metadata), before, number)
        except AquiferError as error:  # the reader itself will be told
            logger.info(
                "read_ahead_failed", segment_id=str(metadata.segment_id), error=error.message
            )

    async def _open(self, metadata: RemoteLogSegmentMetadata) -> ReadableSegment:
        return await self._tables.get(metadata)
