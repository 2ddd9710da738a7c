"""Finding records of the local log by time (K-3.9)."""

from collections.abc import Callable
from functools import partial

import structlog
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.record_batch import RecordBatch, TimestampType
from aquifer_core.formats.record_decompression import open_batch

from aquifer_broker.log.batch_scan import find_batch, next_batch, read_batch
from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import TimestampAndOffset

__all__ = ["find_by_timestamp", "find_max_timestamp"]

logger = structlog.get_logger(__name__)


async def find_by_timestamp(state: LogState, timestamp_ms: int) -> TimestampAndOffset | None:
    """First record at or after a time, from the local log start on."""
    start_offset = state.local_log_start_offset
    for segment in state.segments_in_step(start_offset):
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        entry = segment.time_index.lookup(timestamp_ms)
        position = segment.offset_index.lookup(max(entry.offset, start_offset)).position
        search = partial(_search, segment, position, start_offset, timestamp_ms)
        found = await _in_thread(segment, search)
        if found is not None:
            return _with_epoch(state, found)
    return None


async def find_max_timestamp(state: LogState) -> TimestampAndOffset | None:
    """The record with the largest timestamp; of several the first. None when no record has a timestamp."""
    segments = [segment for segment in state.segments if segment.max_timestamp_ms >= 0]
    if not segments:
        return None
    segment = max(segments, key=lambda each: each.max_timestamp_ms)
    position = segment.offset_index.lookup(segment.offset_of_max_timestamp).position
    timestamp_ms, last_offset = segment.max_timestamp_ms, segment.offset_of_max_timestamp
    search = partial(_search_batch, segment, position, last_offset, timestamp_ms)
    found = await _in_thread(segment, search)
    return None if found is None else _with_epoch(state, found)


async def _in_thread(
    segment: LogSegment, search: Callable[[], tuple[int, int] | None]
) -> tuple[int, int] | None:
    with segment.log_file.pinned():
        return await on_disk(search)


def _search(
    segment: LogSegment, position: int, start_offset: int, timestamp_ms: int
) -> tuple[int, int] | None:
    place = find_batch(segment.log_file, position, start_offset)
    while place is not None:
        if place.max_timestamp_ms >= timestamp_ms:
            found = _in_batch(read_batch(segment.log_file, place), start_offset, timestamp_ms)
            if found is not None:
                return found
        place = next_batch(segment.log_file, place.end_position)
    return None


def _search_batch(
    segment: LogSegment, position: int, last_offset: int, timestamp_ms: int
) -> tuple[int, int] | None:
    place = find_batch(segment.log_file, position, last_offset)
    if place is None:
        return None
    return _in_batch(read_batch(segment.log_file, place), place.base_offset, timestamp_ms)


def _in_batch(batch: RecordBatch, start_offset: int, timestamp_ms: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first fitting record."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.max_timestamp_ms, max(batch.base_offset, start_offset)
    try:
        for record in open_batch(batch):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return record.timestamp_ms, record.offset
    except CorruptRecordError as error:
        # Its records are checked by nobody before a consumer; one that is sent here meets all that it asked for.
        logger.warning("batch_not_opened", base_offset=batch.base_offset, error=error.message)
        return batch.max_timestamp_ms, max(batch.base_offset, start_offset)
    return None


def _with_epoch(state: LogState, found: tuple[int, int]) -> TimestampAndOffset:
    timestamp_ms, offset = found
    return TimestampAndOffset(
        timestamp_ms=timestamp_ms,
        offset=offset,
        leader_epoch=state.leader_epochs.epoch_for_offset(offset),
    )
