"""Recovery of a segment after a crash: keep the valid batches, rebuild everything else from them."""

import structlog
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.control_records import EndTxnMarker, decode_end_txn_batch
from aquifer_core.formats.entry_index import MAX_RELATIVE
from aquifer_core.formats.record_batch import RecordBatch, validate_crc
from aquifer_core.leader_epoch import LeaderEpochCache

from aquifer_broker.log.batch_scan import next_batch, read_batch
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_values import AppendedBatch
from aquifer_broker.log.producer_state import ProducerState

__all__ = ["recover_segment"]

logger = structlog.get_logger(__name__)


def recover_segment(
    segment: LogSegment,
    producers: ProducerState,
    leader_epochs: LeaderEpochCache,
    following_offset: int | None = None,
) -> int:
    """Cuts the segment behind its last valid batch and rebuilds indexes, producer state and leader epochs. Blocks.

    Args:
        segment: Is left growing.
        producers: State before the segment's base offset.
        leader_epochs: Gets the epochs of batches that it does not know.
        following_offset: Where the next segment begins; None: this is the last.

    Returns:
        The bytes cut off.

    Raises:
        OSError: The file could not be read or cut.
    """
    segment.reset_indexes()
    # The checksum does not cover offsets.
    bound = segment.base_offset + MAX_RELATIVE + 1 if following_offset is None else following_offset
    file, position, next_offset = segment.log_file, 0, segment.base_offset
    while True:
        try:
            place = next_batch(file, position)
            if place is None:
                break
            batch = read_batch(file, place)
            marker = _checked(batch, next_offset, bound)
        except CorruptRecordError as error:
            logger.warning(
                "invalid_batch_found", path=str(file.path), position=position, error=str(error)
            )
            break
        appended = AppendedBatch.of(batch)
        segment.index_batch(appended, position)
        if batch.partition_leader_epoch > (
            leader_epochs.latest.epoch if leader_epochs.latest else -1
        ):
            leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        completed = producers.apply(batch, appended, marker)
        if completed is not None and completed.is_aborted:
            segment.transaction_index.append(producers.aborted_transaction(completed))
        position, next_offset = place.end_position, batch.next_offset
    cut = file.size_bytes - position
    if cut:
        file.truncate(position)
        logger.warning("segment_truncated", path=str(file.path), size_bytes=position, cut_bytes=cut)
    return cut


def _checked(batch: RecordBatch, next_offset: int, bound: int) -> EndTxnMarker | None:
    validate_crc(batch)
    if batch.base_offset < next_offset or batch.next_offset > bound:
        raise CorruptRecordError(f"{batch!r} is outside {next_offset}..{bound - 1}")
    return decode_end_txn_batch(batch) if batch.is_control else None
