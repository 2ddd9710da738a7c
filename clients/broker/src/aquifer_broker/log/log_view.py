"""What a partition log tells about itself without touching the disk."""

from collections.abc import Sequence
from pathlib import Path

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.log_values import ActiveProducer, LogOffsets

__all__ = ["LogView"]


class LogView:
    """Read-only side of a partition log."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition."""
        return self._state.topic_id_partition

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._state.directory

    @property
    def config(self) -> LogConfig:
        """The configuration in force."""
        return self._state.config

    @property
    def offsets(self) -> LogOffsets:
        """All offsets at this moment."""
        return self._state.offsets()

    @property
    def log_start_offset(self) -> int:
        """First offset of the log, remote part included."""
        return self._state.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """First offset on the local disk; the log start when the topic is not tiered."""
        return self._state.local_log_start_offset

    @property
    def high_watermark(self) -> int:
        """Offset after the last record that consumers see."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which every transaction is decided."""
        return self._state.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self._state.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below is on the disk."""
        return self._state.recovery_point

    @property
    def checkpointed_recovery_point(self) -> int:
        """What the checkpoint may say: segments that begin below and end above, or are the last, are recovered after a crash.

        The end of a segment adds to its indexes, so one that is not ended, or not flushed since, has to be recovered even if
        all of its records are on the disk.
        """
        state = self._state
        if state.closed:
            return state.recovery_point
        unfinished = (*state.finished, state.segments.active)
        return min(state.recovery_point, *(segment.base_offset for segment in unfinished))

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """-1: none known."""
        return self._state.highest_offset_in_remote_storage

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self._state.segments.size_bytes

    @property
    def local_only_bytes(self) -> int:
        """Bytes of the segments that are not known to be remote, the active one included."""
        highest = self._state.highest_offset_in_remote_storage
        return sum(
            segment.size_bytes
            for segment in self._state.segments.from_offset(highest + 1)
            if segment.base_offset > highest
        )

    @property
    def segment_count(self) -> int:
        """Number of local segments, the active one included."""
        return len(self._state.segments)

    @property
    def active_base_offset(self) -> int:
        """Base offset of the active segment."""
        return self._state.segments.active.base_offset

    @property
    def tiering_enabled(self) -> bool:
        """Whether the topic is tiered."""
        return self._state.config.tiered

    @property
    def may_lack_records(self) -> bool:
        """Whether the log may have to be restored from remote storage before anybody may use it."""
        return self._state.may_lack_records and self._state.config.tiered

    @property
    def lacks_leader_epochs(self) -> bool:
        """Whether the epochs of the remote part are unknown because the checkpoint was lost.

        Until they are found nobody may judge remote segments by the lineage.
        """
        state = self._state
        if state.epochs_completed or state.log_start_offset >= state.local_log_start_offset:
            return False
        earliest = state.leader_epochs.earliest
        return earliest is None or earliest.start_offset > state.log_start_offset

    @property
    def leader_epochs(self) -> LeaderEpochCache:
        """The leader epochs; only to be read, `assign_epoch_start` changes them."""
        return self._state.leader_epochs

    @property
    def latest_epoch(self) -> int | None:
        """The highest leader epoch known."""
        latest = self._state.leader_epochs.latest
        return None if latest is None else latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""
        return self._state.leader_epochs.end_offset_for(epoch, self._state.log_end_offset)

    def active_producers(self) -> Sequence[ActiveProducer]:
        """For DescribeProducers."""
        return [
            ActiveProducer(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp_ms=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=(
                    -1 if entry.txn_first_offset is None else entry.txn_first_offset
                ),
            )
            for entry in self._state.producers.entries()
        ]
