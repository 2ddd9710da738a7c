"""What is written for an append: headers with final offsets, the rest of the caller's bytes untouched."""

import struct
from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import StaleLeaderEpochError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.record_batch import (
    LOG_OVERHEAD_BYTES,
    RecordBatch,
    TimestampType,
    patch_header,
    patch_max_timestamp_and_type,
)
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry

from aquifer_broker.log.append_analysis import AnalyzedRecords
from aquifer_broker.log.log_errors import OffsetsOutOfOrderError
from aquifer_broker.log.log_values import AppendedBatch

__all__ = ["AppendPlan", "plan_leader_append", "plan_replica_append"]

# Base offset, length and leader epoch: the part of a header that the leader sets, outside the CRC.
_LEADER_PART: Final = struct.Struct(">qii")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPlan:
    """An append that is ready to be written.

    Attributes:
        pieces: What to write, in order; together `size_bytes`.
        batches: The final facts of each batch.
        epochs: Leader epochs that begin with this append.
        log_append_time_ms: -1 when producers set the timestamps.
    """

    pieces: list[Buffer]
    batches: list[AppendedBatch]
    epochs: list[LeaderEpochEntry]
    size_bytes: int
    log_append_time_ms: int = -1

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.batches[0].base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.batches[-1].last_offset

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp; -1 when there is none."""
        return max(batch.max_timestamp_ms for batch in self.batches)


def plan_leader_append(
    analyzed: AnalyzedRecords,
    *,
    next_offset: int,
    leader_epoch: int,
    leader_epochs: LeaderEpochCache,
    timestamp_type: TimestampType,
    now_ms: int,
) -> AppendPlan:
    """Gives out offsets from `next_offset` on. The record bytes are not copied unless the log sets the timestamps.

    Raises:
        StaleLeaderEpochError: The log has records of a higher leader epoch.
    """
    latest = leader_epochs.latest
    if latest is not None and leader_epoch < latest.epoch:
        raise StaleLeaderEpochError(
            f"append for leader epoch {leader_epoch}, the log is at {latest.epoch}",
            metadata={"given": str(leader_epoch), "current": str(latest.epoch)},
        )
    begins = latest is None or leader_epoch > latest.epoch
    epochs = [LeaderEpochEntry(leader_epoch, next_offset)] if begins and leader_epoch >= 0 else []
    append_time_ms = now_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else -1
    pieces: list[Buffer] = []
    batches: list[AppendedBatch] = []
    for batch in analyzed.batches:
        pieces += _patched(batch, next_offset, leader_epoch, append_time_ms)
        last_offset = next_offset + batch.last_offset_delta
        timestamp_ms = batch.max_timestamp_ms if append_time_ms < 0 else append_time_ms
        batches.append(AppendedBatch(next_offset, last_offset, batch.size_bytes, timestamp_ms))
        next_offset = last_offset + 1
    return AppendPlan(
        pieces=pieces,
        batches=batches,
        epochs=epochs,
        size_bytes=analyzed.size_bytes,
        log_append_time_ms=append_time_ms,
    )


def plan_replica_append(
    analyzed: AnalyzedRecords, *, next_offset: int, leader_epochs: LeaderEpochCache
) -> AppendPlan:
    """Takes a leader's bytes as they are.

    Raises:
        OffsetsOutOfOrderError: An offset is below the end of the log or of the batch before.
    """
    batches: list[AppendedBatch] = []
    epochs: list[LeaderEpochEntry] = []
    latest_epoch = leader_epochs.latest.epoch if leader_epochs.latest else -1
    for batch in analyzed.batches:
        if batch.base_offset < next_offset:
            raise OffsetsOutOfOrderError(
                f"{batch!r} from the leader starts below the next offset {next_offset}"
            )
        if batch.partition_leader_epoch > latest_epoch:
            latest_epoch = batch.partition_leader_epoch
            epochs.append(LeaderEpochEntry(latest_epoch, batch.base_offset))
        batches.append(AppendedBatch.of(batch))
        next_offset = batch.next_offset
    return AppendPlan(
        pieces=[batch.data for batch in analyzed.batches],
        batches=batches,
        epochs=epochs,
        size_bytes=analyzed.size_bytes,
    )


def _patched(
    batch: RecordBatch, base_offset: int, leader_epoch: int, append_time_ms: int
) -> list[Buffer]:
    data = batch.data
    if append_time_ms < 0:
        length = batch.size_bytes - LOG_OVERHEAD_BYTES
        return [
            _LEADER_PART.pack(base_offset, length, leader_epoch),
            data[_LEADER_PART.size :],
        ]
    copy = bytearray(data)
    patch_header(copy, 0, base_offset, leader_epoch)
    patch_max_timestamp_and_type(copy, 0, append_time_ms)
    return [copy]
