"""What the manager remembers of a partition that it works for. All of it can be derived again from metadata."""

import asyncio
from dataclasses import dataclass, field

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate

from aquifer_manager.domain.ports import LogDescription

__all__ = ["PartitionWork", "QuietPlan", "Uncommitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncommitted:
    """A copy whose data is stored, while nobody knows whether its COPY_SEGMENT_FINISHED arrived."""

    metadata: RemoteLogSegmentMetadata
    update: RemoteLogSegmentMetadataUpdate
    leader_epoch: int
    remote_log_index: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietPlan:
    """Retention had nothing to delete, and will not have while all of this holds.

    Attributes:
        version: of the partition's metadata.
        confirmed_s: when metadata had that version, on the clock's monotonic scale.
        lineage: of the leader.
        log_start_offset: of the leader.
        log_end_offset: the leader's is not below; all segments end before it.
        retention_ms: of the topic.
        retention_bytes: of the topic.
        remote_bytes: of the lineage.
        until_ms: when time makes a segment expire, by the wall clock; None: never.
    """

    version: int
    confirmed_s: float
    lineage: tuple[LeaderEpochEntry, ...]
    log_start_offset: int
    log_end_offset: int
    retention_ms: int
    retention_bytes: int
    remote_bytes: int
    until_ms: int | None


@dataclass(slots=True, kw_only=True)
class PartitionWork:
    """Mutable memory of one partition; survives changes of leadership, but not of the process.

    Attributes:
        beginning: held while a task finds out what follows for a new leader epoch.
        leader_epoch: the epoch that the following five are valid for.
        announced: metadata knows this leader epoch, so older leaders are fenced.
        copied_offset: highest remote offset of the lineage; -1: nothing; None: not looked up yet.
        recorded_log_start: log start offset that metadata surely has.
        fenced: metadata knows a higher leader epoch; nothing is done until the partition is announced again.
        in_progress: copies begun and not settled; retention leaves them alone.
        begun: copies begun, also finished ones as long as the broker may not know of them.
        stored: of these, what is uploaded and waits until all older ones are committed.
        uncommitted: copies to finish before anything else.
        failed: copies to take back before anything else.
        probing: the last copy failed, so one at a time is tried until one succeeds.
        told_s: when a copy run last told the broker how far remote storage reaches, on the clock's monotonic scale.
        quiet: retention has nothing to delete for now.
        observed: last known state of the local log with its rolled segments, `observed_at_ms` by the wall clock.
        lagging: base offset of the oldest segment that is not remote, and when that was seen first, by the wall clock.
    """

    topic_id_partition: TopicIdPartition
    beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    leader_epoch: int = -1
    announced: bool = False
    copied_offset: int | None = None
    recorded_log_start: int = -1
    fenced: bool = False
    in_progress: set[KafkaUuid] = field(default_factory=set)
    begun: dict[KafkaUuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    stored: dict[KafkaUuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    uncommitted: dict[KafkaUuid, Uncommitted] = field(default_factory=dict)
    failed: dict[KafkaUuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    probing: bool = False
    told_s: float = float("-inf")
    quiet: QuietPlan | None = None
    observed: LogDescription | None = None
    observed_at_ms: int = 0
    lagging: tuple[int, int] | None = None
    copied_segments: int = 0
    copied_bytes: int = 0
    deleted_segments: int = 0
    constraint_violations: int = 0

    def begin_epoch(self, leader_epoch: int) -> None:
        """Forgets what was derived for another leader epoch, and any fence. Copies under way stay."""
        self.quiet = None
        if leader_epoch != self.leader_epoch:
            self.announced = False
            self.copied_offset = None
            self.recorded_log_start = -1
        self.leader_epoch = leader_epoch
        self.fenced = False

    @property
    def highest_remote_offset(self) -> int:
        """How far remote storage reaches, by what the broker and this manager know; -1: nothing, or unknown."""
        heard = -1 if self.observed is None else self.observed.highest_remote_offset
        return heard if self.copied_offset is None else max(heard, self.copied_offset)

    def note_observed(self, log: LogDescription, now_ms: int) -> None:
        """Takes note of a look at the log."""
        self.observed, self.observed_at_ms = log, now_ms
        reaches = self.highest_remote_offset
        waiting = (each.base_offset for each in log.segments if each.end_offset > reaches)
        oldest = next(waiting, None)
        if oldest is None:
            self.lagging = None
        elif self.lagging is None or self.lagging[0] != oldest:
            self.lagging = (oldest, now_ms)

    def local_only_bytes(self, log: LogDescription) -> int:
        """Bytes of a log that no finished segment holds, now or a moment later; rather too few than too many.

        Metadata knows of a finished copy before the broker does, and a broker that has just started knows of none.
        """
        told = log.highest_remote_offset
        for segment_id, segment in list(self.begun.items()):
            if segment_id not in self.in_progress and segment.end_offset <= told:
                del self.begun[segment_id]
        untold = [each for each in self.begun.values() if each.end_offset > told]
        is_gapless = any(each.start_offset <= told + 1 for each in untold)
        if self.copied_offset is None or (self.copied_offset > told and not is_gapless):
            # Others copied what the broker does not know of; how many bytes that is cannot be told.
            return 0
        return max(0, log.local_only_bytes - sum(each.segment_size_bytes for each in untold))

    def knows_all_copies(self, log: LogDescription, highest_end_offset: int) -> bool:
        """Whether whatever reaches as far was copied here, or the broker knows of it."""
        ends = [each.end_offset for each in self.begun.values()]
        return highest_end_offset <= max([log.highest_remote_offset, *ends])

    def note_copied(self, metadata: RemoteLogSegmentMetadata, leader_epoch: int) -> None:
        """A copy begun in a leader epoch is finished in metadata."""
        if metadata.segment_id.id not in self.in_progress:
            return
        self.in_progress.discard(metadata.segment_id.id)
        self.quiet = None
        self.copied_segments += 1
        self.copied_bytes += metadata.segment_size_bytes
        if self.copied_offset is not None and self.leader_epoch == leader_epoch:
            self.copied_offset = max(self.copied_offset, metadata.end_offset)
