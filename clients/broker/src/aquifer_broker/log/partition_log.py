"""One partition's log: append, read, offsets, truncation and what tiering needs of it.

Signatures under construction; behaviour as documented.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aquifer_core.formats.checksum import Buffer
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import LogSegmentData

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_values import (
    ActiveProducer,
    AppendInfo,
    AppendOrigin,
    FetchIsolation,
    LogOffsets,
    LogRead,
    RolledSegment,
    TimestampAndOffset,
)


class PartitionLog:
    """The local log of one partition. Made by `LogManager`; lives in the event loop's thread.

    Every method raises `LogStorageError` when the log dir is offline.
    """

    topic_id_partition: TopicIdPartition
    directory: Path
    config: LogConfig

    @property
    def offsets(self) -> LogOffsets: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def local_log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def highest_offset_in_remote_storage(self) -> int:
        """-1: none."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def tiering_enabled(self) -> bool:
        """remote.storage.enable of the topic, and not compacted."""

    @property
    def leader_epochs(self): ...  # aquifer_core.leader_epoch.LeaderEpochCache
    @property
    def latest_epoch(self) -> int | None: ...

    async def append(
        self, records: Buffer, *, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Checks and appends record batches. Offsets and leader epoch are set, except with origin REPLICATION.

        Does not wait for the disk unless `flush.messages` says so. `records` is not modified and not kept.

        Raises:
            CorruptRecordError: CRC, magic or structure (CORRUPT_MESSAGE).
            RecordTooLargeError, RecordListTooLargeError, InvalidRecordError, InvalidTimestampError,
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: see `log_errors`; each has `kafka_error_code`.
        """

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
                log_start_offset <= fetch_offset < local_log_start_offset and `tiering_enabled`.
        """

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back in the loop after every move of end offset, high watermark or last stable offset; returns the undo."""

    async def wait_for_data(
        self, offset: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    ) -> None:
        """Returns once a record at `offset` is readable. Use with `asyncio.timeout`."""

    def set_replicated(self, replicated: bool) -> None:
        """Unreplicated (default of `LogManager.open_log`): the high watermark is the end offset."""

    def set_high_watermark(self, offset: int) -> int:
        """Moves the high watermark, kept inside [log start, log end]; returns the result."""

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Monotonic."""

    async def increase_log_start_offset(self, offset: int, *, reason: str = "") -> bool:
        """Raises the log start (DeleteRecords, retention); local segments wholly below go. A lower value does nothing.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
        """

    async def truncate_to(self, offset: int) -> bool:
        """Drops records at and after `offset` (followers); True when something was dropped."""

    async def truncate_fully_and_start_at(
        self, offset: int, *, log_start_offset: int | None = None
    ) -> None:
        """Empties the log; the next record gets `offset`. `log_start_offset` may be lower (tiered bootstrap)."""

    async def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Records the start of a leader epoch, durably. Call on becoming leader with `log_end_offset`."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """First record of the LOCAL log at or after a time; None: none."""

    async def max_timestamp(self) -> TimestampAndOffset | None:
        """The record with the largest timestamp of the local log; None: empty."""

    def active_producers(self) -> Sequence[ActiveProducer]:
        """For DescribeProducers."""

    def rolled_segments(self, from_offset: int = 0) -> Sequence[RolledSegment]:
        """From the segment holding `from_offset` on, without the active one."""

    def segment_data(self, base_offset: int) -> AbstractAsyncContextManager[LogSegmentData]:
        """`async with` the parts of a rolled segment; its files stay readable inside.

        Raises:
            RemoteResourceNotFoundError: no such rolled segment.
        """

    async def roll_active(self) -> int:
        """Closes the active segment unless it is empty; returns the active segment's base offset."""

    async def apply_local_retention(self) -> int:
        """One retention pass (K-3.5); number of segments deleted."""

    async def flush(self) -> None:
        """fsync up to the end offset; moves the recovery point."""

    def update_config(self, config: LogConfig) -> None:
        """Takes effect at once."""
