"""Uploads a local segment through the RemoteStorageManager, telling how far it is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Final

from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import (
    CopyResult,
    LogSegmentData,
    LogSource,
    RemoteLogSegmentMetadata,
)

__all__ = ["upload_segment"]

_PROGRESS_INTERVAL_S: Final = 1.0


class _CountingSource:
    """A source that knows how much was taken from it."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self.size_bytes = source.size_bytes
        self.sent_bytes = 0

    async def chunks(self) -> AsyncIterator[bytes | memoryview]:
        async for piece in self._source.chunks():
            yield piece
            self.sent_bytes += len(piece)


async def upload_segment(
    storage: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
) -> AsyncGenerator[int | CopyResult, None]:
    """Yields the bytes sent about once a second, and last the result. Closing the iterator cancels the upload.

    Raises:
        AquiferError: What the RemoteStorageManager or the local disk raised.
    """
    source = _CountingSource(data.log_segment)
    upload = asyncio.create_task(
        storage.copy_log_segment_data(metadata, replace(data, log_segment=source)),
        name=f"upload {metadata.segment_id.id}",
    )
    try:
        while True:
            done, _ = await asyncio.wait([upload], timeout=_PROGRESS_INTERVAL_S)
            if done:
                break
            yield source.sent_bytes
        yield upload.result()
    finally:
        if not upload.done():
            upload.cancel()
            await asyncio.wait([upload])
