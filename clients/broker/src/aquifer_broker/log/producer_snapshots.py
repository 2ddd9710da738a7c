"""Producer snapshot files of a log: finding, writing, removing, and rebuilding state from them (K-6.5)."""

from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path

import structlog
from aquifer_core.errors import CorruptIndexError, CorruptRecordError
from aquifer_core.formats.control_records import decode_end_txn_batch
from aquifer_core.formats.segment_files import (
    DELETED_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    parse_base_offset,
    segment_file_name,
)

from aquifer_broker.log.batch_scan import BatchPlace, find_batch, next_batch, read_batch
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_values import AppendedBatch
from aquifer_broker.log.producer_state import ProducerState

__all__ = [
    "mark_snapshot_deleted",
    "rebuild_producer_state",
    "remove_snapshots_above",
    "remove_stray_snapshots",
    "snapshot_offsets",
    "snapshot_path",
    "write_missing_snapshot",
    "write_snapshot",
]

logger = structlog.get_logger(__name__)


def snapshot_path(directory: Path, offset: int) -> Path:
    """The file with the state before an offset."""
    return directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)


def snapshot_offsets(directory: Path) -> list[int]:
    """Offsets of all snapshot files, ascending."""
    names = (path.name for path in directory.iterdir() if path.suffix == PRODUCER_SNAPSHOT_SUFFIX)
    return sorted(offset for name in names if (offset := parse_base_offset(name)) is not None)


def write_snapshot(directory: Path, producers: ProducerState) -> Path:
    """Writes the snapshot at the state's offset, whole or not at all, without fsync."""
    path = snapshot_path(directory, producers.map_end_offset)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(producers.to_snapshot())
    return temporary.replace(path)


def write_missing_snapshot(directory: Path, producers: ProducerState) -> None:
    """Writes the snapshot at the state's offset unless there is one; at offset 0 there is none, as with Kafka."""
    offset = producers.map_end_offset
    if offset > 0 and not snapshot_path(directory, offset).exists():
        write_snapshot(directory, producers)


def mark_snapshot_deleted(directory: Path, offset: int) -> list[Path]:
    """Renames a snapshot so that whoever removes it later cannot meet another of the same name; the new path, if there was one."""
    path = snapshot_path(directory, offset)
    try:
        return [path.rename(path.with_name(path.name + DELETED_SUFFIX))]
    except FileNotFoundError:
        return []


def remove_snapshots_above(directory: Path, offset: int, *, but: int | None = None) -> None:
    """Removes snapshots of records that the log no longer has, but one that may be given."""
    for found in snapshot_offsets(directory):
        if found > offset and found != but:
            snapshot_path(directory, found).unlink(missing_ok=True)


def remove_stray_snapshots(directory: Path, base_offsets: Collection[int]) -> None:
    """Keeps the snapshots that belong to segments, and the newest of the others."""
    strays = [offset for offset in snapshot_offsets(directory) if offset not in base_offsets]
    for offset in strays[:-1]:
        snapshot_path(directory, offset).unlink(missing_ok=True)


def rebuild_producer_state(
    directory: Path, segments: Iterable[LogSegment], end_offset: int
) -> ProducerState:
    """State for all records below an offset, from the newest usable snapshot and the batches after it. Blocks.

    Snapshots missing at segment borders on the way are written, because a copy of a segment needs the one of the next.
    """
    producers = _newest_state(directory, end_offset)
    for segment, following in pairwise((*segments, None)):
        assert segment is not None
        if segment.base_offset > end_offset:
            break
        if following is not None and following.base_offset <= producers.map_end_offset:
            continue
        producers.map_end_offset = max(producers.map_end_offset, segment.base_offset)
        if segment.base_offset == producers.map_end_offset:
            write_missing_snapshot(directory, producers)
        try:
            _replay(segment, producers, end_offset)
        except CorruptRecordError as error:
            # Damage to a segment that was flushed; a read will meet it. Producers behind it are known all the same.
            path = str(segment.log_file.path)
            logger.warning("producers_lost_to_damage", path=path, error=str(error))
        if following is not None:
            segment.log_file.close()
    producers.map_end_offset = end_offset
    return producers


def _newest_state(directory: Path, end_offset: int) -> ProducerState:
    for offset in reversed(snapshot_offsets(directory)):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            continue
        try:
            return ProducerState.from_snapshot(offset, path.read_bytes())
        except CorruptIndexError as error:
            logger.warning("producer_snapshot_corrupt", path=str(path), error=str(error))
            path.unlink(missing_ok=True)
    return ProducerState()


def _replay(segment: LogSegment, producers: ProducerState, end_offset: int) -> None:
    start = max(producers.map_end_offset, segment.base_offset)
    position = segment.offset_index.lookup(start).position
    place = find_batch(segment.log_file, position, start)
    while place is not None and place.base_offset < end_offset:
        if place.producer_id >= 0:
            _apply(segment, producers, place)
        producers.map_end_offset = place.last_offset + 1
        place = next_batch(segment.log_file, place.end_position)


def _apply(segment: LogSegment, producers: ProducerState, place: BatchPlace) -> None:
    batch = read_batch(segment.log_file, place)
    marker = decode_end_txn_batch(batch) if batch.is_control else None
    producers.apply(batch, AppendedBatch.of(batch), marker)
