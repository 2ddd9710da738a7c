"""What the RemoteLogMetadataManager in memory knows of one partition."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.partition_summary import PartitionSummary
from aquifer_core.ports import PartitionChange
from aquifer_core.segment import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata
from aquifer_core.segment_lifecycle import check_leader_epoch
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState

__all__ = ["KnownSegment", "PartitionFacts"]

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(slots=True)
class KnownSegment:
    """A segment with the partition's versions in which it changed last and in which its copy was finished."""

    metadata: RemoteLogSegmentMetadata
    version: int
    finished_version: int = 0


@dataclass(slots=True, kw_only=True)
class PartitionFacts:
    """Everything about one partition, and who is to be told of changes.

    Attributes:
        segments: by id; those whose deletion has finished are gone.
        highest_offsets: by leader epoch; deleted segments count.
        highest_leader_epoch: None: none was seen.
        version: counts the changes.
        changes: every one, oldest first.
    """

    segments: dict[KafkaUuid, KnownSegment] = field(default_factory=dict)
    highest_offsets: dict[int, int] = field(default_factory=dict)
    highest_leader_epoch: int | None = None
    earliest_log_offset: int | None = None
    deletion: RemotePartitionDeleteMetadata | None = None
    version: int = 0
    changes: list[PartitionChange] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def delete_state(self) -> RemotePartitionDeleteState | None:
        """How far the partition's deletion is; None: nobody deletes it."""
        return None if self.deletion is None else self.deletion.state

    @property
    def forgotten(self) -> bool:
        """Whether its deletion has finished."""
        return self.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

    def listed(self, leader_epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """Segments, those of a leader epoch or all, by start offset."""
        listed = [
            known.metadata
            for known in self.segments.values()
            if leader_epoch is None or leader_epoch in known.metadata.segment_leader_epochs
        ]
        return sorted(listed, key=lambda found: (found.start_offset, found.segment_id.id))

    def referenced(self, epoch: int) -> list[tuple[int, int, KnownSegment]]:
        """(first, last offset, segment) of the epoch's finished segments that no other one covers, by first offset."""
        finished = [
            (*known.metadata.epoch_ranges()[epoch], known)
            for known in self.segments.values()
            if known.metadata.state is _FINISHED and epoch in known.metadata.segment_leader_epochs
        ]
        kept = [entry for entry in finished if not any(_covers(other, entry) for other in finished)]
        return sorted(kept, key=lambda entry: entry[0])

    def summary(self) -> PartitionSummary:
        """All of it in numbers."""
        listed = self.listed()
        ages = [
            each.max_timestamp_ms if each.max_timestamp_ms >= 0 else each.event_timestamp_ms
            for each in listed
        ]
        return PartitionSummary(
            version=self.version,
            earliest_log_offset=self.earliest_log_offset,
            segments=len(listed),
            unfinished_segments=sum(each.state is not _FINISHED for each in listed),
            oldest_timestamp_ms=min(ages, default=-1),
            highest_end_offset=max((each.end_offset for each in listed), default=-1),
            highest_offsets=dict(self.highest_offsets),
        )

    def check_epoch(self, tip: TopicIdPartition, leader_epoch: int | None) -> None:
        """Refuses the word of a leader that was replaced.

        Raises:
            StaleLeaderEpochError: a higher leader epoch was seen.
        """
        check_leader_epoch(tip, leader_epoch, self.highest_leader_epoch)

    def see_epoch(self, leader_epoch: int | None) -> None:
        """Remembers the highest leader epoch; None changes nothing."""
        if leader_epoch is not None:
            highest = self.highest_leader_epoch
            self.highest_leader_epoch = (
                leader_epoch if highest is None else max(leader_epoch, highest)
            )

    def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Takes up a copy that has begun."""
        self.version += 1
        self.segments[metadata.segment_id.id] = KnownSegment(metadata, self.version)
        self._announce(PartitionChange(version=self.version, segment=metadata))

    def change(self, known: KnownSegment, after: RemoteLogSegmentMetadata) -> None:
        """Moves a segment on."""
        before = known.metadata.state
        self.version += 1
        known.metadata, known.version = after, self.version
        if after.state is _FINISHED and before is not _FINISHED:
            known.finished_version = self.version
            for epoch, (_, end) in after.epoch_ranges().items():
                self.highest_offsets[epoch] = max(self.highest_offsets.get(epoch, -1), end)
        elif after.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[after.segment_id.id]
        self._announce(PartitionChange(version=self.version, segment=after))

    def raise_log_start(self, offset: int) -> None:
        """Records the log start offset."""
        self.version += 1
        self.earliest_log_offset = offset
        self._announce(PartitionChange(version=self.version, earliest_log_offset=offset))

    def delete(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Records how far the partition's deletion is."""
        self.version += 1
        self.deletion = metadata
        self._announce(PartitionChange(version=self.version, delete_state=metadata.state))

    def forget(self) -> None:
        """Drops all that a finished deletion leaves no use for."""
        self.segments.clear()
        self.highest_offsets.clear()
        self.earliest_log_offset = None

    async def watch(self, from_version: int) -> AsyncIterator[PartitionChange]:
        """Changes after a version, then new ones as they come, without end; from 0 what exists now comes first."""
        version = from_version
        if version == 0:
            version = self.version
            for change in self._present():
                yield change
        while True:
            changed = self.changed
            pending = [change for change in self.changes if change.version > version]
            for change in pending:
                version = change.version
                yield change
            if not pending:
                await changed.wait()

    def _present(self) -> list[PartitionChange]:
        """What exists now, as changes in the order of their versions."""
        present = [
            PartitionChange(version=known.version, segment=known.metadata)
            for known in self.segments.values()
        ]
        deletions = [change for change in self.changes if change.delete_state is not None]
        moves = [change for change in self.changes if change.earliest_log_offset is not None]
        present += deletions[-1:]
        if not self.forgotten:
            present += moves[-1:]
        return sorted(present, key=lambda change: change.version)

    def _announce(self, change: PartitionChange) -> None:
        self.changes.append(change)
        self.changed.set()
        self.changed = asyncio.Event()


def _covers(other: tuple[int, int, KnownSegment], entry: tuple[int, int, KnownSegment]) -> bool:
    """Whether another copy holds all of this one and more, or the same and was finished later."""
    start, end, known = entry
    other_start, other_end, other_known = other
    if other_start > start or other_end < end:
        return False
    if (other_start, other_end) != (start, end):
        return True
    return other_known.finished_version > known.finished_version
