"""What of a partition's log is read from its files."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.segment import LogSegmentData

from aquifer_broker.log.log_reader import local_aborted_transactions, read_log
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import (
    FetchIsolation,
    LogRead,
    RolledSegment,
    TimestampAndOffset,
)
from aquifer_broker.log.log_view import LogView
from aquifer_broker.log.log_waiters import LogWaiters
from aquifer_broker.log.segment_export import describe_rolled_segments, export_segment
from aquifer_broker.log.storage_guard import LogGuard
from aquifer_broker.log.timestamp_lookup import find_by_timestamp, find_max_timestamp

__all__ = ["ReadableLog"]


class ReadableLog(LogView):
    """The reading side of a partition log: records, times, segments to copy; and waiting for more of them."""

    def __init__(self, state: LogState, resources: LogResources) -> None:
        super().__init__(state)
        self._guard = LogGuard(resources.guard, str(state.topic_id_partition))
        self._waiters = LogWaiters()

    async def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> LogRead:
        """File bytes from the batch holding `fetch_offset`, of one segment, never past the bound of the isolation.

        Raises:
            OffsetOutOfRangeError: outside [local_log_start_offset, log_end_offset]; the offset is remote when
                log_start_offset <= fetch_offset < local_log_start_offset.
        """
        with self._guard:
            return await read_log(
                self._state,
                fetch_offset,
                max_bytes,
                min_one_batch=min_one_batch,
                isolation=isolation,
            )

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back in the loop after every move of end offset, high watermark or last stable offset; returns the undo."""
        return self._waiters.subscribe(callback)

    async def wait_for_data(
        self, offset: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> None:
        """Returns once a record at `offset` is readable. Use with `asyncio.timeout`."""
        await self._waiters.wait_until(lambda: self._state.upper_bound(isolation) > offset)

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """First record of the LOCAL log at or after a time; None: none."""
        with self._guard:
            return await find_by_timestamp(self._state, timestamp_ms)

    async def max_timestamp(self) -> TimestampAndOffset | None:
        """The record with the largest timestamp of the local log; None: there is none."""
        with self._guard:
            return await find_max_timestamp(self._state)

    def rolled_segments(
        self, from_offset: int = 0, limit: int | None = None
    ) -> Sequence[RolledSegment]:
        """From the segment holding `from_offset` on, without the active one; at most `limit`."""
        with self._guard:
            return describe_rolled_segments(self._state, from_offset, limit)

    def copyable_segments(
        self, from_offset: int = 0, limit: int | None = None
    ) -> Sequence[RolledSegment]:
        """As `rolled_segments`, without those that are not on the disk yet.

        A copy of what a power cut takes from the disk would be of no use: the log goes on below it, with other records.
        """
        durable_end = self._state.recovery_point
        rolled = self.rolled_segments(from_offset, limit)
        return [segment for segment in rolled if segment.end_offset < durable_end]

    def aborted_transactions(
        self, fetch_offset: int, upper_bound: int
    ) -> Sequence[AbortedTransaction]:
        """Aborted transactions that local segments know of, for a read of [fetch_offset, upper_bound) of older segments (K-3.8).

        Raises:
            CorruptIndexError: A transaction index is damaged.
        """
        with self._guard:
            return local_aborted_transactions(self._state, fetch_offset, upper_bound)

    def segment_data(self, base_offset: int) -> AbstractAsyncContextManager[LogSegmentData]:
        """`async with` the parts of a rolled segment; its files stay readable inside.

        Raises:
            RemoteResourceNotFoundError: no such rolled segment.
        """
        return export_segment(self._state, base_offset, self._guard)
