"""What is known of one log; its parts share it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_segments import LogSegments
from aquifer_broker.log.log_values import FetchIsolation, LogOffsets
from aquifer_broker.log.producer_state import ProducerState

__all__ = ["LogState"]


@dataclass(slots=True, kw_only=True)
class LogState:
    """Mutable state of a log, changed only in the event loop's thread.

    Attributes:
        first_local_offset: Where the local part starts; counts only when the topic is tiered.
        recovery_point: Everything below is on the disk with its indexes, but for what `finished` says.
        finished: Segments that were ended, so that their indexes got their last entries, and were not flushed since.
        closed: No more segments will be ended.
        highest_offset_in_remote_storage: -1: none known.
        epochs_saved: Whether the checkpoint file has the leader epochs as they are.
        may_lack_records: Local files were lost that remote storage may have; set until the two were compared.
        epochs_completed: Remote storage was asked for leader epochs older than the local log.
        flushing: Held while the log's files are made durable.
    """

    topic_id_partition: TopicIdPartition
    directory: Path
    config: LogConfig
    segments: LogSegments
    producers: ProducerState
    leader_epochs: LeaderEpochCache
    log_start_offset: int
    first_local_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    highest_offset_in_remote_storage: int = -1
    finished: list[LogSegment] = field(default_factory=list)
    closed: bool = False
    epochs_saved: bool = True
    may_lack_records: bool = False
    epochs_completed: bool = False
    flushing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def local_log_start_offset(self) -> int:
        """First offset of the local log; the log start when the topic is not tiered (K-3.9)."""
        if self.config.tiered:
            return max(self.first_local_offset, self.log_start_offset)
        return self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided; at most the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

    def segments_in_step(self, offset: int = 0) -> Iterator[LogSegment]:
        """Segments from the one that may hold an offset on, each the next one at the time: for those who wait in between.

        What retention deletes meanwhile is left out, and after a move the files are those in the new directory.
        """
        segment: LogSegment | None = self.segments.floor(offset) or self.segments.first
        while segment is not None:
            yield segment
            segment = self.segments.following(segment)

    def go_on_in(self, copy: "LogState") -> None:
        """The log's files are those of a copy from now on; what is known of the log beyond them stays."""
        self.directory, self.segments, self.finished = copy.directory, copy.segments, []
        self.segments.active.update_config(self.config)
        self.recovery_point = copy.recovery_point
        self.epochs_saved = (
            copy.epochs_saved and copy.leader_epochs.entries == self.leader_epochs.entries
        )

    def upper_bound(self, isolation: FetchIsolation) -> int:
        """Offset, exclusive, that a read may not pass."""
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def offsets(self) -> LogOffsets:
        """All offsets at this moment."""
        return LogOffsets(
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.local_log_start_offset,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_end_offset=self.log_end_offset,
            highest_offset_in_remote_storage=self.highest_offset_in_remote_storage,
        )

    def end_of(self, segment: LogSegment) -> int:
        """Offset after the last one of a segment: the next one's base, or the log end."""
        following = self.segments.following(segment)
        return self.log_end_offset if following is None else following.base_offset
