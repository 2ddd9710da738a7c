"""Judging record batches before they are appended: checksum, structure, limits (Kafka's `LogValidator`)."""

from dataclasses import dataclass

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.record_batch import RecordBatch, TimestampType, iter_batches, validate_crc

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from aquifer_broker.log.log_values import AppendOrigin

__all__ = ["AnalyzedRecords", "analyze_records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzedRecords:
    """Record batches found fit to append.

    Attributes:
        batches: In order, with the offsets they came with.
        size_bytes: Bytes of the complete batches; a partial one behind them is dropped.
        max_timestamp_ms: Largest timestamp; -1 when there is none.
        offset_count: How many offsets a leader gives out for them.
    """

    batches: list[RecordBatch]
    size_bytes: int
    max_timestamp_ms: int
    offset_count: int


def analyze_records(
    records: Buffer, origin: AppendOrigin, config: LogConfig, now_ms: int
) -> AnalyzedRecords:
    """Checks everything that can be told without opening the batches.

    Args:
        records: Record batches of magic 2; not copied.
        origin: What a client may not do, a leader's log or a coordinator may.
        config: Limits.
        now_ms: What timestamps are compared with.

    Raises:
        CorruptRecordError: Checksum, magic or structure.
        RecordTooLargeError: A batch exceeds `max.message.bytes`.
        RecordListTooLargeError: All together exceed a segment.
        InvalidRecordError: A client's batch breaks the rules for clients.
        InvalidTimestampError: A client's timestamp is too far from now.
    """
    batches = list(iter_batches(records))
    size_bytes = offset_count = 0
    max_timestamp_ms = -1
    for batch in batches:
        validate_crc(batch)
        if batch.last_offset_delta < 0 or batch.record_count < 0:
            raise CorruptRecordError(f"{batch!r} has a negative offset delta or record count")
        if origin is not AppendOrigin.REPLICATION and batch.size_bytes > config.max_message_bytes:
            raise RecordTooLargeError(
                f"a record batch has {batch.size_bytes} bytes, max.message.bytes allows {config.max_message_bytes}"
            )
        size_bytes += batch.size_bytes
        offset_count += batch.last_offset_delta + 1
        max_timestamp_ms = max(max_timestamp_ms, batch.max_timestamp_ms)
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(batches, config, now_ms)
    if origin is not AppendOrigin.REPLICATION and size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{size_bytes} bytes in one append, segment.bytes allows {config.segment_bytes}"
        )
    return AnalyzedRecords(
        batches=batches,
        size_bytes=size_bytes,
        max_timestamp_ms=max_timestamp_ms,
        offset_count=offset_count,
    )


def _check_client_batch(batches: list[RecordBatch], config: LogConfig, now_ms: int) -> None:
    if len(batches) != 1:
        raise InvalidRecordError(f"a client must send exactly one record batch, not {len(batches)}")
    batch = batches[0]
    if batch.is_control:
        raise InvalidRecordError("clients may not write control records")
    if batch.base_offset != 0:
        raise InvalidRecordError(f"a client's base offset must be 0, not {batch.base_offset}")
    if batch.record_count != batch.last_offset_delta + 1 or batch.record_count < 1:
        raise InvalidRecordError(
            f"{batch.record_count} records do not fill the offsets 0..{batch.last_offset_delta}"
        )
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer {batch.producer_id} sent epoch {batch.producer_epoch} and sequence {batch.base_sequence}"
        )
    if batch.is_transactional and batch.producer_id < 0:
        raise InvalidRecordError("a transactional batch without a producer id")
    _ = batch.codec  # refuses codecs that do not exist
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        _check_timestamps(batch, config, now_ms)


def _check_timestamps(batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
    """Judges by the header: the first and the largest timestamp, not each record's."""
    if batch.timestamp_type is not TimestampType.CREATE_TIME:
        raise InvalidTimestampError("a client may not claim log append time")
    latest_ms = batch.max_timestamp_ms
    if latest_ms >= 0 and latest_ms - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {latest_ms} is more than {config.message_timestamp_after_max_ms} ms ahead of {now_ms}"
        )
    first_ms = batch.base_timestamp_ms
    if first_ms >= 0 and now_ms - first_ms > config.message_timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {first_ms} is more than {config.message_timestamp_before_max_ms} ms before {now_ms}"
        )
