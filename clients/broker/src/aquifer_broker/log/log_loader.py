"""Loading a log from its directory, with recovery after an unclean shutdown."""

from dataclasses import dataclass
from pathlib import Path

import structlog
from aquifer_core.errors import CorruptIndexError, CorruptRecordError
from aquifer_core.formats.leader_epoch_checkpoint import parse_leader_epochs
from aquifer_core.formats.segment_files import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_NAME,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_base_offset,
    segment_file_name,
)
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry

from aquifer_broker.log.epoch_rebuild import add_older_entries, scan_leader_epochs
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_segments import LogSegments
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.producer_snapshots import (
    rebuild_producer_state,
    remove_snapshots_above,
    remove_stray_snapshots,
    write_missing_snapshot,
)
from aquifer_broker.log.remote_check import is_check_due, require_check
from aquifer_broker.log.segment_recovery import recover_segment

__all__ = ["LogCheckpoints", "load_log"]

logger = structlog.get_logger(__name__)

_INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# Left behind by a crash between two renames; `.cleaned` and `.swap` by Kafka's compaction.
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, ".tmp", ".cleaned")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheckpoints:
    """What the checkpoint files of the log dir say of a log.

    Attributes:
        clean_shutdown: Nothing has to be recovered.
        log_start_offset: None when the file does not name the log.
    """

    clean_shutdown: bool = False
    recovery_point: int = 0
    log_start_offset: int | None = None
    high_watermark: int = 0


def load_log(
    directory: Path,
    topic_id_partition: TopicIdPartition,
    config: LogConfig,
    checkpoints: LogCheckpoints,
    now_ms: int,
) -> LogState:
    """Loads a log, or makes an empty one in an empty directory. Blocks.

    Raises:
        OSError: The disk failed.
    """
    _remove_leftovers(directory)
    segments = [
        LogSegment(directory, base_offset, config, now_ms=now_ms, create=False)
        for base_offset in _base_offsets(directory)
    ]
    try:
        return _load(
            directory, topic_id_partition, config, checkpoints, segments=segments, now_ms=now_ms
        )
    except BaseException:
        for segment in segments:
            segment.release()
        raise


def _load(
    directory: Path,
    topic_id_partition: TopicIdPartition,
    config: LogConfig,
    checkpoints: LogCheckpoints,
    *,
    segments: list[LogSegment],
    now_ms: int,
) -> LogState:
    saved_epochs = _load_epochs(directory)
    epochs = LeaderEpochCache(saved_epochs or ())
    recovered = _recover(directory, config, segments, epochs, checkpoints)
    start = checkpoints.log_start_offset or 0
    end_offset = segments[-1].next_offset() if segments else start
    if segments and end_offset < start:
        logger.warning("log_ends_below_its_start", directory=str(directory), log_start_offset=start)
        _drop(directory, config, segments)
    may_lack_records = _may_lack_records(directory, config, lost=not segments)
    if segments:
        epochs = _with_local_epochs(
            directory, segments, epochs, start, known=saved_epochs is not None
        )
    else:
        end_offset = start
        segments.append(LogSegment(directory, start, config, now_ms=now_ms, create=True))
        remove_snapshots_above(directory, -1)
        epochs.clear()
    segments[-1].start_growing()
    first_base = segments[0].base_offset
    if not config.tiered:
        start = max(start, first_base)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start)
    remove_snapshots_above(directory, end_offset)
    remove_stray_snapshots(directory, {segment.base_offset for segment in segments})
    producers = rebuild_producer_state(directory, segments, end_offset)
    for segment in segments[:-1]:
        # Of thousands of segments few are read; those open their files again.
        segment.release()
    high_watermark = max(start, first_base, min(checkpoints.high_watermark, end_offset))
    producers.on_high_watermark(high_watermark)
    return LogState(
        topic_id_partition=topic_id_partition,
        directory=directory,
        config=config,
        segments=LogSegments(segments),
        producers=producers,
        leader_epochs=epochs,
        log_start_offset=start,
        first_local_offset=max(start, first_base),
        log_end_offset=end_offset,
        high_watermark=high_watermark,
        recovery_point=min(checkpoints.recovery_point, end_offset) if recovered else end_offset,
        epochs_saved=epochs.entries == saved_epochs,
        may_lack_records=may_lack_records,
    )


def _remove_leftovers(directory: Path) -> None:
    for path in list(directory.iterdir()):
        if path.suffix in _LEFTOVER_SUFFIXES:
            path.unlink(missing_ok=True)
        elif path.suffix in _INDEX_SUFFIXES:
            base_offset = parse_base_offset(path.name)
            if base_offset is None:
                continue
            if not (directory / segment_file_name(base_offset, LOG_SUFFIX)).exists():
                logger.warning("orphan_index_removed", path=str(path))
                path.unlink()


def _base_offsets(directory: Path) -> list[int]:
    names = (path.name for path in directory.iterdir() if path.suffix == LOG_SUFFIX)
    return sorted(offset for name in names if (offset := parse_base_offset(name)) is not None)


def _may_lack_records(directory: Path, config: LogConfig, *, lost: bool) -> bool:
    """Whether remote storage may have what is not here: all segments are missing, or some were dropped.

    The note is left before a segment is made, so that a log that was begun anew is known for one after a crash, too.
    """
    if lost and config.tiered:
        require_check(directory)
    return is_check_due(directory)


def _load_epochs(directory: Path) -> tuple[LeaderEpochEntry, ...] | None:
    """What the checkpoint says; None: it is not there, or says nothing that can be read."""
    path = directory / LEADER_EPOCH_CHECKPOINT_NAME
    try:
        return LeaderEpochCache(parse_leader_epochs(path.read_bytes())).entries
    except FileNotFoundError:
        return None
    except CorruptIndexError as error:
        logger.warning("leader_epochs_corrupt", path=str(path), error=str(error))
        return None


def _with_local_epochs(
    directory: Path,
    segments: list[LogSegment],
    epochs: LeaderEpochCache,
    start: int,
    *,
    known: bool,
) -> LeaderEpochCache:
    """The epochs, completed where the local log has older ones: every batch names its epoch.

    The checkpoint may be lost, or have been cut at a log start that no other file knows of after a crash. What is remote only, the
    tiered part has to find out.
    """
    earliest = epochs.earliest if known else None
    if earliest is not None and earliest.start_offset <= max(start, segments[0].base_offset):
        return epochs
    older = segments
    if earliest is not None:
        older = [each for each in segments if each.base_offset < earliest.start_offset]
    scanned = scan_leader_epochs(older)
    if known:
        add_older_entries(epochs, scanned.entries)
    else:
        epochs = scanned
    logger.warning("leader_epochs_rebuilt", directory=str(directory), epochs=len(epochs))
    return epochs


def _recover(
    directory: Path,
    config: LogConfig,
    segments: list[LogSegment],
    epochs: LeaderEpochCache,
    checkpoints: LogCheckpoints,
) -> bool:
    """Recovers what has to be; answers whether anything was.

    Segments behind damage that a crash may have done are dropped, as what follows may be older than what is lost. They stay
    behind damage in what was flushed.
    """
    recovered = False
    for index, segment in enumerate(list(segments)):
        may_be_torn = _may_be_torn(segments, index, checkpoints)
        if not may_be_torn and _is_sound(segment, is_last=index + 1 == len(segments)):
            continue
        recovered = True
        producers = rebuild_producer_state(directory, segments[:index], segment.base_offset)
        write_missing_snapshot(directory, producers)
        remove_snapshots_above(directory, segment.base_offset)
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        cut = recover_segment(segment, producers, epochs, following)
        segment.finish()
        segment.release()
        if cut and may_be_torn:
            _drop(directory, config, segments, index + 1)
            break
    return recovered


def _may_be_torn(segments: list[LogSegment], index: int, checkpoints: LogCheckpoints) -> bool:
    if checkpoints.clean_shutdown:
        return False
    is_last = index + 1 == len(segments)
    return is_last or segments[index + 1].base_offset > checkpoints.recovery_point


def _is_sound(segment: LogSegment, *, is_last: bool) -> bool:
    try:
        segment.load_state()
        if is_last:
            segment.start_growing()
            # What is appended behind anything else would be lost with it.
            segment.next_offset()
        else:
            # Of thousands of segments few are read; those open their files again.
            segment.release()
    except (CorruptIndexError, CorruptRecordError) as error:
        logger.warning("segment_unsound", path=str(segment.log_file.path), error=str(error))
        return False
    return True


def _drop(directory: Path, config: LogConfig, segments: list[LogSegment], start: int = 0) -> None:
    """Removes segments, the last one first. Their loss is noted before: a crash in between leaves nothing else that tells of it."""
    if config.tiered and segments[start:]:
        require_check(directory)
    for segment in reversed(segments[start:]):
        logger.warning("segment_dropped", path=str(segment.log_file.path))
        segment.close()
        for path in segment.files():
            path.unlink(missing_ok=True)
    del segments[start:]
