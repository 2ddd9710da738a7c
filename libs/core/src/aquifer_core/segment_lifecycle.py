"""Refusals that every RemoteLogMetadataManager shares: invalid transitions and writes of leaders that were replaced (K-1.3)."""

from typing import Final

from aquifer_core.errors import (
    ErrorReason,
    InvalidRequestError,
    InvalidStateTransitionError,
    PreconditionError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
)
from aquifer_core.ids import RemoteLogSegmentId, TopicIdPartition
from aquifer_core.retention_values import RetentionReason
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from aquifer_core.state import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    is_valid_partition_delete_transition,
    is_valid_segment_transition,
)

COPY_FAILED: Final = "copy failed"
"""Reason of whoever deletes a copy because it was not finished."""

_NEVER_FINISHED: Final = frozenset({COPY_FAILED, RetentionReason.COPY_ABANDONED.value})


def check_new_segment(metadata: RemoteLogSegmentMetadata) -> None:
    """Refuses to add a segment that is not about to be copied.

    Raises:
        InvalidRequestError: its state is not COPY_SEGMENT_STARTED (INVALID_SEGMENT).
    """
    if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise InvalidRequestError(
            f"segment {metadata.segment_id.id} is added in state {metadata.state.name},"
            " it must be COPY_SEGMENT_STARTED",
            reason=ErrorReason.INVALID_SEGMENT,
        )


def check_same_segment(known: RemoteLogSegmentMetadata, added: RemoteLogSegmentMetadata) -> None:
    """Accepts a repeated addition, refuses everything else under a known id.

    Raises:
        InvalidRequestError: the known segment has other content (INVALID_SEGMENT).
        InvalidStateTransitionError: the known segment has moved on.
    """
    check_transition(added.segment_id, known.state, added.state)
    if known != added:
        raise InvalidRequestError(
            f"segment {added.segment_id.id} is known with other content; a new copy needs a new id",
            reason=ErrorReason.INVALID_SEGMENT,
        )


def check_update_target(update: RemoteLogSegmentMetadataUpdate) -> None:
    """Refuses an update back to the beginning.

    Raises:
        InvalidRequestError: the target is COPY_SEGMENT_STARTED (INVALID_SEGMENT).
    """
    if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise InvalidRequestError(
            f"segment {update.segment_id.id} cannot be updated to COPY_SEGMENT_STARTED; add it instead",
            reason=ErrorReason.INVALID_SEGMENT,
        )


def check_transition(
    segment_id: RemoteLogSegmentId,
    source: RemoteLogSegmentState,
    target: RemoteLogSegmentState,
) -> None:
    """Refuses a move that the segment's state machine forbids.

    Raises:
        InvalidStateTransitionError: metadata keys `from`, `to`, `segmentId`.
    """
    if not is_valid_segment_transition(source, target):
        raise InvalidStateTransitionError(
            f"segment {segment_id.id} cannot move from {source.name} to {target.name}",
            metadata={"from": source.name, "to": target.name, "segmentId": str(segment_id.id)},
        )


def check_update(update: RemoteLogSegmentMetadataUpdate, source: RemoteLogSegmentState) -> None:
    """Refuses an update that the state machine forbids, or that deletes as never finished what has been finished meanwhile.

    Whoever takes back a copy of somebody else decides by what it saw before; only here is it known what the copy is by now.

    Raises:
        InvalidStateTransitionError: metadata keys `from`, `to`, `segmentId`.
    """
    check_transition(update.segment_id, source, update.state)
    if (
        source is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        and update.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        and update.reason in _NEVER_FINISHED
    ):
        raise InvalidStateTransitionError(
            f"segment {update.segment_id.id} has been finished, so it cannot be deleted for {update.reason!r}",
            metadata={
                "from": source.name,
                "to": update.state.name,
                "segmentId": str(update.segment_id.id),
            },
        )


def check_update_of_unknown(
    update: RemoteLogSegmentMetadataUpdate, last_state: RemoteLogSegmentState | None
) -> None:
    """Accepts that a deletion is finished again, refuses every other update of a segment that is not there.

    Args:
        last_state: what history says of the segment, None when it was never seen.

    Raises:
        RemoteResourceNotFoundError: it was never seen (SEGMENT_NOT_FOUND).
        InvalidStateTransitionError: it is gone and cannot come back.
    """
    if last_state is None:
        raise RemoteResourceNotFoundError(
            f"segment {update.segment_id} is unknown",
            metadata={"segmentId": str(update.segment_id.id)},
        )
    check_transition(update.segment_id, last_state, update.state)


def check_leader_epoch(
    topic_id_partition: TopicIdPartition, given: int | None, current: int | None
) -> None:
    """Refuses a leader that has been replaced.

    Args:
        given: leader epoch of the write, None when it is not for a leader.
        current: highest leader epoch seen, None for none.

    Raises:
        StaleLeaderEpochError: metadata keys `given`, `current`.
    """
    if given is not None and current is not None and given < current:
        raise StaleLeaderEpochError(
            f"leader epoch {given} of {topic_id_partition} has been followed by {current}",
            metadata={"given": str(given), "current": str(current)},
        )


def check_partition_accepts_segments(
    topic_id_partition: TopicIdPartition, delete_state: RemotePartitionDeleteState | None
) -> None:
    """Refuses new segments of a partition whose remote data is being deleted.

    Raises:
        PreconditionError: it is (INVALID_PARTITION_TRANSITION).
    """
    if delete_state is not None:
        raise PreconditionError(
            f"remote data of {topic_id_partition} is being deleted ({delete_state.name}):"
            " no segment can be added",
            reason=ErrorReason.INVALID_PARTITION_TRANSITION,
            metadata={"from": delete_state.name, "to": "COPY_SEGMENT_STARTED"},
        )


def check_partition_delete_transition(
    topic_id_partition: TopicIdPartition,
    source: RemotePartitionDeleteState | None,
    target: RemotePartitionDeleteState,
) -> None:
    """Refuses a step that the partition deletion's state machine forbids.

    Raises:
        InvalidStateTransitionError: metadata keys `from` (empty for none) and `to`.
    """
    if not is_valid_partition_delete_transition(source, target):
        before = "" if source is None else source.name
        raise InvalidStateTransitionError(
            f"deletion of {topic_id_partition} cannot move from {before or 'nothing'} to {target.name}",
            reason=ErrorReason.INVALID_PARTITION_TRANSITION,
            metadata={"from": before, "to": target.name},
        )


def partition_gone(topic_id_partition: TopicIdPartition) -> RemoteResourceNotFoundError:
    """The refusal to look into a partition whose deletion has finished."""
    return RemoteResourceNotFoundError(
        f"remote data of {topic_id_partition} has been deleted",
        reason=ErrorReason.PARTITION_NOT_FOUND,
        metadata={"topicIdPartition": str(topic_id_partition)},
    )
