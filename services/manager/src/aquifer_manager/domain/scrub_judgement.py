"""Whether a stored segment that metadata does not list may be removed: decided from facts, changes nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.coverage import Coverage
from aquifer_manager.domain.ports import LogDescription

__all__ = ["ExtraReason", "PartitionKnowledge", "judge_extra", "partition_knowledge"]


class ExtraReason(StrEnum):
    """Why a stored segment is extra; the first three are proof enough to remove it."""

    DELETED_IN_METADATA = "DELETED_IN_METADATA"
    """Its history ends with DELETE_SEGMENT_FINISHED."""
    PARTITION_DELETED = "PARTITION_DELETED"
    """The deletion of its partition has finished."""
    NOT_IN_METADATA = "NOT_IN_METADATA"
    """Metadata never knew it, and every record of it is in another segment, waits locally to be copied, or is below the log start."""
    MAY_BE_THE_ONLY_COPY = "MAY_BE_THE_ONLY_COPY"
    """Metadata never knew it, and holds some records that nothing else is known to hold."""
    PARTITION_UNKNOWN = "PARTITION_UNKNOWN"
    """Metadata knows nothing of the partition, neither segments nor a deletion: it may be the wrong database."""

    @property
    def proven(self) -> bool:
        """Whether the segment may be removed."""
        return self in (self.DELETED_IN_METADATA, self.PARTITION_DELETED, self.NOT_IN_METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionKnowledge:
    """What metadata knows of a partition.

    Attributes:
        deleted: its deletion has finished.
        known: anything was ever recorded of it.
        earliest_offset: recorded log start; None: none.
    """

    deleted: bool
    known: bool
    earliest_offset: int | None = None


async def partition_knowledge(
    metadata: RemoteLogMetadataManager, tip: TopicIdPartition, epochs: Iterable[int]
) -> PartitionKnowledge:
    """Asks metadata what it knows of a partition besides its listed segments.

    Args:
        metadata: is asked.
        tip: of the partition.
        epochs: leader epochs that may have had copies.

    Raises:
        RemoteStorageUnavailableError: metadata did not answer; nothing is concluded.
    """
    wanted = sorted(set(epochs)) or [0]
    try:
        await metadata.remote_log_segment_metadata(tip, wanted[0], 0)
    except RemoteResourceNotFoundError as error:
        if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
            raise
        return PartitionKnowledge(deleted=True, known=True)
    earliest = await metadata.earliest_log_offset(tip)
    known = earliest is not None
    for epoch in wanted:
        if known:
            break
        known = await metadata.highest_offset_for_epoch(tip, epoch) is not None
    return PartitionKnowledge(deleted=False, known=known, earliest_offset=earliest)


async def judge_extra(
    metadata: RemoteLogMetadataManager,
    segment: RemoteLogSegmentMetadata,
    coverage: Coverage,
    log: LogDescription | None,
    *,
    any_listed: bool,
) -> ExtraReason | None:
    """What is to be said of a stored segment; None when metadata knows it as anything but deleted.

    Args:
        metadata: is asked for the segment's history and its partition.
        segment: by the store's manifest.
        coverage: of the segment by those in metadata whose objects are there.
        log: the leader's, when it answers.
        any_listed: metadata has segments of the partition whose objects are there.

    Raises:
        RemoteStorageUnavailableError: metadata did not answer; nothing is concluded.
    """
    history = await metadata.segment_history(segment.segment_id)
    if history:
        gone = history[-1].to_state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
        return ExtraReason.DELETED_IN_METADATA if gone else None
    tip = segment.topic_id_partition
    knowledge = await partition_knowledge(metadata, tip, segment.segment_leader_epochs)
    if knowledge.deleted:
        return ExtraReason.PARTITION_DELETED
    if not any_listed and not knowledge.known:
        return ExtraReason.PARTITION_UNKNOWN
    start = max(knowledge.earliest_offset or 0, 0 if log is None else log.log_start_offset)
    if coverage.left(log, start):
        return ExtraReason.MAY_BE_THE_ONLY_COPY
    return ExtraReason.NOT_IN_METADATA
