"""Loads chunks before anybody reads them."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from aquifer_core.errors import ErrorReason, InvalidRequestError
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_storage.domain.chunk_reader import ChunkReader
from aquifer_storage.domain.chunk_tables import ChunkTables


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmProgress:
    """How far a warming has come.

    Attributes:
        warmed_bytes: original bytes of the chunks that are cached now.
        total_bytes: original bytes of all chunks of the range.
        done: nothing more is loaded: all is there, or there is no room.
    """

    warmed_bytes: int
    total_bytes: int
    done: bool = False


class SegmentWarmer:
    """Loads the chunks of a range into the caches, within their budgets."""

    def __init__(self, tables: ChunkTables, chunks: ChunkReader) -> None:
        self._tables = tables
        self._chunks = chunks

    async def warm(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None
    ) -> AsyncGenerator[WarmProgress, None]:
        """Load chunks from the front of a range on, until there is no room, with progress.

        Raises:
            InvalidRequestError: the positions are not a range.
            RemoteResourceNotFoundError: the segment is not in the store.
            CorruptSegmentError: a chunk is damaged.
        """
        if start_position < 0 or (end_position is not None and end_position < start_position):
            raise InvalidRequestError(
                f"positions {start_position} to {end_position} are not a range",
                reason=ErrorReason.INVALID_OFFSET_RANGE,
            )
        segment = await self._tables.get(metadata)
        size_bytes = segment.table.data_size_bytes
        end = size_bytes - 1 if end_position is None else min(end_position, size_bytes - 1)
        numbers = segment.table.chunks_between(start_position, end) if start_position <= end else ()
        total_bytes = sum(map(segment.size_bytes, numbers))
        warmed_bytes = 0
        while numbers and (count := await self._chunks.load(segment, numbers)):
            warmed_bytes += sum(map(segment.size_bytes, numbers[:count]))
            numbers = numbers[count:]
            yield WarmProgress(warmed_bytes=warmed_bytes, total_bytes=total_bytes)
        yield WarmProgress(warmed_bytes=warmed_bytes, total_bytes=total_bytes, done=True)
