"""Leader epochs of a log whose checkpoint is lost: from its batches, and from older entries found elsewhere."""

from collections.abc import Iterable

from aquifer_core.errors import CorruptRecordError
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry

from aquifer_broker.log.batch_scan import next_batch
from aquifer_broker.log.log_segment import LogSegment

__all__ = ["add_older_entries", "scan_leader_epochs"]


def scan_leader_epochs(segments: Iterable[LogSegment]) -> LeaderEpochCache:
    """The epochs that the batches of sound segments name, by their headers alone. Blocks.

    Raises:
        OSError: The disk failed.
    """
    epochs = LeaderEpochCache()
    latest = -1
    for segment in segments:
        position = 0
        try:
            while (place := next_batch(segment.log_file, position)) is not None:
                if place.leader_epoch > latest:
                    latest = place.leader_epoch
                    epochs.assign(latest, place.base_offset)
                position = place.end_position
        except CorruptRecordError:
            # Damage between two index entries of a segment that was closed well; a read will meet it.
            pass
        # Of thousands of segments few are read; those open their files again.
        segment.log_file.close()
    return epochs


def add_older_entries(epochs: LeaderEpochCache, older: Iterable[LeaderEpochEntry]) -> bool:
    """Puts entries of the same lineage before the first one known; answers whether anything changed.

    An older start of the first epoch known counts too: local segments may begin in the middle of an epoch.
    """
    before = epochs.entries
    first = epochs.earliest
    fitting = [
        entry
        for entry in older
        if first is None or (entry.epoch <= first.epoch and entry.start_offset < first.start_offset)
    ]
    epochs.clear()
    for entry in (*fitting, *before):
        epochs.assign(entry.epoch, entry.start_offset)
    return epochs.entries != before
