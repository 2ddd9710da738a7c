"""Listings of a partition's segments that begin in its middle: an ability that a RemoteLogMetadataManager may have."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol, cast, runtime_checkable

from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = ["SegmentListings", "segments_from"]


@runtime_checkable
class SegmentListings(Protocol):
    """Lists from an offset on without a look at what lies below it."""

    def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """As `RemoteLogMetadataManager.list_remote_log_segments`, without segments that start below an offset."""
        ...


async def segments_from(
    metadata: RemoteLogMetadataManager, tip: TopicIdPartition, start_offset: int
) -> AsyncIterator[RemoteLogSegmentMetadata]:
    """The listing from an offset on, of any RemoteLogMetadataManager: what cannot begin there is listed whole and left out."""
    listing = (
        metadata.list_remote_log_segments_from(tip, start_offset)
        if start_offset > 0 and isinstance(metadata, SegmentListings)
        else metadata.list_remote_log_segments(tip)
    )
    if not hasattr(listing, "aclose"):
        async for segment in listing:
            if segment.start_offset >= start_offset:
                yield segment
        return
    async with aclosing(cast(Any, listing)):
        async for segment in listing:
            if segment.start_offset >= start_offset:
                yield segment
