"""Values that go in and out of a partition log."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.record_batch import RecordBatch
from aquifer_core.formats.transaction_index import AbortedTransaction


class AppendOrigin(IntEnum):
    """Who appends, which decides how strictly a batch is judged (Kafka's `AppendOrigin`)."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class FetchIsolation(IntEnum):
    """Up to where a read may go (Kafka's `FetchIsolation`)."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendInfo:
    """Result of an append.

    Attributes:
        first_offset: offset of the first record.
        last_offset: offset of the last record, inclusive.
        log_append_time_ms: -1 with `message.timestamp.type=CreateTime`.
        log_start_offset: of the log, after the append.
        size_bytes: bytes appended; 0 for a duplicate.
        duplicate: True when the batch was in the log already; offsets are then the original ones.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int
    duplicate: bool = False


class AppendedBatch(NamedTuple):
    """What indexes and producer state need to know of a batch, with its final offsets."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int

    @classmethod
    def of(cls, batch: RecordBatch) -> "AppendedBatch":
        """The facts of a batch that has its final offsets."""
        return cls(batch.base_offset, batch.last_offset, batch.size_bytes, batch.max_timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """All offsets of a log at one moment (K-3.14). -1 in `highest_offset_in_remote_storage`: none."""

    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    highest_offset_in_remote_storage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """Result of a read.

    Attributes:
        records: file bytes from the batch that holds the fetch offset; may end with a partial batch. Empty when there
            is nothing to read below the bound.
        offsets: of the log when it was read.
        aborted_transactions: None unless the isolation was TXN_COMMITTED.
    """

    records: Buffer
    offsets: LogOffsets
    aborted_transactions: Sequence[AbortedTransaction] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampAndOffset:
    """A record found by time. `leader_epoch` is None when the cache does not know it."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledSegment:
    """A segment that gets no more records.

    Attributes:
        base_offset: first offset, inclusive; names the files.
        end_offset: the next segment's base offset - 1, inclusive.
        size_bytes: of the `.log` file.
        max_timestamp_ms: largest record timestamp; the file's modification time when no record has one.
        has_transactions: whether a transaction was aborted in it, so that it has a transaction index.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    has_transactions: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """State of one producer, for DescribeProducers. -1 where Kafka says -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int = field(default=-1)
