"""Finds the first remote record at or after a timestamp (SR-26, K-3.9)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import structlog
from aquifer_core.errors import CorruptRecordError, RemoteResourceNotFoundError
from aquifer_core.formats.record_batch import RecordBatch, TimestampType, iter_batches
from aquifer_core.formats.record_decompression import open_batch
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.ports import Clock, RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata

from aquifer_manager.domain.backoff import Backoff, retry_until
from aquifer_manager.domain.ports import IndexSource
from aquifer_manager.domain.reader_pool import ReaderPool
from aquifer_manager.domain.segment_finder import SegmentFinder
from aquifer_manager.domain.streams import closing

__all__ = ["FoundOffset", "OffsetForTimestamp", "TimestampQuery"]

logger = structlog.get_logger(__name__)

_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampQuery:
    """Asks for the first record at or after `timestamp_ms` and at or after `log_start_offset`.

    Attributes:
        lineage: leader epoch -> start offset.
        local_log_start_offset: segments that start at or after it are the broker's to search.
    """

    topic_id_partition: TopicIdPartition
    lineage: dict[int, int]
    timestamp_ms: int
    log_start_offset: int
    local_log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """A record's offset, timestamp and leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class OffsetForTimestamp:
    """Asks metadata for the segment, its time index for a place to begin, and reads batches from there."""

    def __init__(
        self,
        storage: RemoteStorageManager,
        finder: SegmentFinder,
        indexes: IndexSource,
        *,
        pool: ReaderPool,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._storage = storage
        self._finder = finder
        self._indexes = indexes
        self._pool = pool
        self._clock = clock
        self._backoff = backoff

    async def find(self, query: TimestampQuery, timeout_s: float) -> FoundOffset | None:
        """The first remote record; None when the caller should look into its local log.

        Args:
            query: what is asked.
            timeout_s: time that the caller gave.

        Raises:
            QuotaExceededError: too many remote reads are waiting (READER_QUEUE_FULL).
            RemoteStorageUnavailableError: metadata or storage did not answer in time.
            RemoteResourceNotFoundError: metadata has a segment that the store does not have.
            CorruptDataError: stored bytes are damaged.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        async with self._pool.slot():
            return await retry_until(
                lambda: self._find(query),
                backoff=self._backoff,
                deadline_s=deadline_s,
                clock=self._clock,
            )

    async def _find(self, query: TimestampQuery) -> FoundOffset | None:
        min_offset = query.log_start_offset
        gone: RemoteLogSegmentId | None = None
        while True:
            segment = await self._finder.for_timestamp(
                query.topic_id_partition,
                query.lineage,
                query.timestamp_ms,
                min_offset,
                local_log_start_offset=query.local_log_start_offset,
            )
            if segment is None or segment.start_offset >= query.local_log_start_offset:
                return None
            try:
                found = await self._search(segment, query)
            except RemoteResourceNotFoundError:
                if segment.segment_id == gone:
                    raise
                # Deleted between the look-up and the read: metadata knows by now.
                gone = segment.segment_id
                continue
            if found is not None:
                return found
            # The segment's records with such timestamps lie below the log start.
            min_offset = segment.end_offset + 1

    async def _search(
        self, segment: RemoteLogSegmentMetadata, query: TimestampQuery
    ) -> FoundOffset | None:
        index = TimeIndex(
            await self._indexes.index(segment, IndexType.TIMESTAMP), segment.start_offset
        )
        begin = max(
            index.lookup(query.timestamp_ms).offset, query.log_start_offset, segment.start_offset
        )
        async with closing(self._batches(segment, begin)) as batches:
            async for batch in batches:
                found = self._first_in(batch, query)
                if found is not None:
                    return found
        return None

    async def _batches(
        self, segment: RemoteLogSegmentMetadata, offset: int
    ) -> AsyncIterator[RecordBatch]:
        while offset <= segment.end_offset:
            records = self._storage.fetch_records(segment, offset, _READ_BYTES, min_one_batch=True)
            async with closing(records) as pieces:
                data = b"".join([bytes(piece) async for piece in pieces])
            batch: RecordBatch | None = None
            for batch in iter_batches(data):
                yield batch
            if batch is None:
                return
            offset = batch.next_offset

    def _first_in(self, batch: RecordBatch, query: TimestampQuery) -> FoundOffset | None:
        """The first record of a batch that will do; batches that cannot have one are not decoded."""
        if (
            batch.max_timestamp_ms < query.timestamp_ms
            or batch.last_offset < query.log_start_offset
        ):
            return None
        epoch = batch.partition_leader_epoch
        if (
            batch.timestamp_type is TimestampType.LOG_APPEND_TIME
            and batch.base_offset >= query.log_start_offset
        ):
            return FoundOffset(
                offset=batch.base_offset,
                timestamp_ms=batch.max_timestamp_ms,
                leader_epoch=epoch,
            )
        try:
            for record in open_batch(batch):
                if (
                    record.timestamp_ms >= query.timestamp_ms
                    and record.offset >= query.log_start_offset
                ):
                    return FoundOffset(
                        offset=record.offset, timestamp_ms=record.timestamp_ms, leader_epoch=epoch
                    )
        except CorruptRecordError as error:
            # As brokers do it with local ones: who is sent to its beginning meets all that was asked for.
            logger.warning("batch_not_opened", base_offset=batch.base_offset, error=error.message)
            return FoundOffset(
                offset=max(batch.base_offset, query.log_start_offset),
                timestamp_ms=batch.max_timestamp_ms,
                leader_epoch=epoch,
            )
        return None
