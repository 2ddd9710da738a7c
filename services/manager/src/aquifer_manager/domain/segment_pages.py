"""A partition's listing in pages, for work that takes its time with each: no stream stays open meanwhile."""

from collections.abc import AsyncIterator
from typing import Final

from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.segment_listings import segments_from

from aquifer_manager.domain.streams import closing

__all__ = ["listed_segments", "segment_pages"]

_PAGE: Final = 500
"""As many as a message of the metadata service holds."""


async def listed_segments(
    metadata: RemoteLogMetadataManager, tip: TopicIdPartition, start_offset: int = 0
) -> AsyncIterator[RemoteLogSegmentMetadata]:
    """Segments from an offset on, by start offset; none of a partition whose deletion has finished.

    Raises:
        AquiferError: metadata did not answer.
    """
    try:
        async with closing(segments_from(metadata, tip, start_offset)) as listing:
            async for segment in listing:
                yield segment
    except RemoteResourceNotFoundError as error:
        if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
            raise


async def segment_pages(
    metadata: RemoteLogMetadataManager, tip: TopicIdPartition
) -> AsyncIterator[list[RemoteLogSegmentMetadata]]:
    """Pages of at most 500 segments, by start offset; each is asked for when the one before is done with.

    What changes meanwhile behind the page at hand is not seen any more.

    Raises:
        AquiferError: metadata did not answer.
    """
    start_offset, told = 0, set[KafkaUuid]()
    while True:
        page: list[RemoteLogSegmentMetadata] = []
        async with closing(listed_segments(metadata, tip, start_offset)) as listing:
            async for segment in listing:
                if segment.segment_id.id not in told:
                    page.append(segment)
                    if len(page) == _PAGE:
                        break
        if page:
            yield page
        if len(page) < _PAGE:
            return
        last = page[-1].start_offset
        # Several copies may begin at one offset.
        told = told if last == start_offset else set()
        told |= {each.segment_id.id for each in page if each.start_offset == last}
        start_offset = last
