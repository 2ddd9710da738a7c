"""What the store holds and metadata does not list: both are read side by side, in the order of offsets, and neither is held."""

from collections import deque
from collections.abc import AsyncIterator

import structlog
from aquifer_core.errors import CorruptDataError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.domain.segment_pages import segment_pages
from aquifer_manager.domain.streams import closing

__all__ = ["is_stored", "unlisted_segments"]

logger = structlog.get_logger(__name__)


async def unlisted_segments(
    storage: RemoteStorageManager, metadata: RemoteLogMetadataManager, tip: TopicIdPartition
) -> AsyncIterator[RemoteLogSegmentMetadata]:
    """Stored segments that metadata did not list when it was asked; it may know them all the same, so look again at each.

    The store tells segments by offset; one that comes late is told as unlisted.

    Raises:
        AquiferError: metadata or the store did not answer.
    """
    async with closing(segment_pages(metadata, tip)) as pages:
        listed = _Listed(pages)
        async with closing(_stored(storage, tip, _prefix(tip))) as stored:
            async for segment in stored:
                if not await listed.has(segment):
                    yield segment


async def is_stored(storage: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bool:
    """Whether the store still lists a segment."""
    tip = segment.topic_id_partition
    prefix = f"{_prefix(tip)}{segment.start_offset:020d}-"
    async with closing(_stored(storage, tip, prefix)) as stored:
        async for each in stored:
            if each.segment_id == segment.segment_id:
                return True
    return False


class _Listed:
    """Metadata's listing, read as far as it was asked about."""

    def __init__(self, pages: AsyncIterator[list[RemoteLogSegmentMetadata]]) -> None:
        self._pages = pages
        self._ahead: deque[RemoteLogSegmentMetadata] = deque()
        self._start_offset = -1
        self._ids: set[KafkaUuid] = set()

    async def has(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether a segment is listed; asked by ascending start offsets."""
        start_offset = segment.start_offset
        if start_offset > self._start_offset:
            self._start_offset, self._ids = start_offset, set()
            while await self._is_ahead() and self._ahead[0].start_offset <= start_offset:
                each = self._ahead.popleft()
                if each.start_offset == start_offset:
                    self._ids.add(each.segment_id.id)
        return start_offset == self._start_offset and segment.segment_id.id in self._ids

    async def _is_ahead(self) -> bool:
        if not self._ahead:
            self._ahead.extend(await anext(self._pages, []))
        return bool(self._ahead)


async def _stored(
    storage: RemoteStorageManager, tip: TopicIdPartition, prefix: str
) -> AsyncIterator[RemoteLogSegmentMetadata]:
    try:
        async with closing(storage.list_stored_segments(prefix)) as listing:
            async for each in listing:
                if each.metadata.topic_id_partition == tip:
                    yield each.metadata
    except CorruptDataError as error:
        # Said after all sound ones. What metadata knows of the others is checked one by one.
        logger.warning("manifests_damaged", topic=tip.topic, partition=tip.partition, error=error)


def _prefix(tip: TopicIdPartition) -> str:
    return f"{tip.topic}-{tip.topic_id}/{tip.partition}/"
