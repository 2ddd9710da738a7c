"""Partition deletion, retention, changes and history of the metadata service."""

from aquifer.common.v1 import segment_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer_core.errors import InvalidRequestError
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.ports import (
    PartitionChange,
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
    SegmentEvent,
)
from aquifer_core.segment import RemotePartitionDeleteMetadata

from aquifer_rpc.convert._field import missing, required
from aquifer_rpc.convert._partition import tip_from_pb, tip_to_pb, uuid_from_pb
from aquifer_rpc.convert._segment import (
    partition_delete_state_from_pb,
    partition_delete_state_to_pb,
    segment_metadata_from_pb,
    segment_metadata_to_pb,
    segment_state_from_pb,
    segment_state_to_pb,
)

_REASON_PREFIX = "RETENTION_REASON_"


def partition_delete_to_pb(
    metadata: RemotePartitionDeleteMetadata,
) -> pb.PutRemotePartitionDeleteMetadataRequest:
    """A step of a partition's deletion to its message."""
    return pb.PutRemotePartitionDeleteMetadataRequest(
        topic_id_partition=tip_to_pb(metadata.topic_id_partition),
        state=partition_delete_state_to_pb(metadata.state),
        event_timestamp_ms=metadata.event_timestamp_ms,
        broker_id=metadata.broker_id,
    )


def partition_delete_from_pb(
    message: pb.PutRemotePartitionDeleteMetadataRequest | pb.PartitionDeletion,
) -> RemotePartitionDeleteMetadata:
    """A step of a partition's deletion from its message.

    Raises:
        InvalidRequestError: something is absent or malformed.
    """
    tip = required(message, "topic_id_partition", message.topic_id_partition)
    return RemotePartitionDeleteMetadata(
        topic_id_partition=tip_from_pb(tip),
        state=partition_delete_state_from_pb(message.state),
        event_timestamp_ms=message.event_timestamp_ms,
        broker_id=message.broker_id,
    )


def partition_deletion_to_pb(deletion: RemotePartitionDeleteMetadata) -> pb.PartitionDeletion:
    """A deletion of a listing to its message."""
    return pb.PartitionDeletion(
        topic_id_partition=tip_to_pb(deletion.topic_id_partition),
        state=partition_delete_state_to_pb(deletion.state),
        event_timestamp_ms=deletion.event_timestamp_ms,
        broker_id=deletion.broker_id,
    )


def retention_policy_to_pb(policy: RetentionPolicy) -> pb.RetentionPolicy:
    """A retention policy to its message."""
    return pb.RetentionPolicy(
        retention_ms=policy.retention_ms,
        retention_bytes=policy.retention_bytes,
        log_start_offset=policy.log_start_offset,
        log_end_offset=policy.log_end_offset,
        local_only_bytes=policy.local_only_bytes,
        in_progress=sorted(str(segment_id) for segment_id in policy.in_progress),
        copy_abandoned_after_ms=policy.copy_abandoned_after_ms,
    )


def retention_policy_from_pb(message: pb.RetentionPolicy, field: str = "policy") -> RetentionPolicy:
    """A retention policy from its message.

    Raises:
        InvalidRequestError: a segment id is malformed.
    """
    return RetentionPolicy(
        retention_ms=message.retention_ms,
        retention_bytes=message.retention_bytes,
        log_start_offset=message.log_start_offset,
        log_end_offset=message.log_end_offset,
        local_only_bytes=message.local_only_bytes,
        in_progress=frozenset(
            uuid_from_pb(text, f"{field}.in_progress") for text in message.in_progress
        ),
        copy_abandoned_after_ms=message.copy_abandoned_after_ms,
    )


def retention_reason_to_pb(reason: RetentionReason) -> pb.RetentionReason.ValueType:
    """A reason of expiration to its enum."""
    return pb.RetentionReason.Value(_REASON_PREFIX + reason.value)


def retention_reason_from_pb(number: int, field: str = "reason") -> RetentionReason:
    """A reason of expiration from its enum.

    Raises:
        InvalidRequestError: unspecified or unknown.
    """
    if number == pb.RETENTION_REASON_UNSPECIFIED:
        raise missing(field)
    if number not in pb.RetentionReason.values():
        raise InvalidRequestError(
            f"{field} has the unknown value {number}", metadata={"field": field}
        )
    name = pb.RetentionReason.Name(pb.RetentionReason.ValueType(number))
    return RetentionReason(name.removeprefix(_REASON_PREFIX))


def retention_plan_to_pb(plan: RetentionPlan) -> pb.ListRetentionCandidatesResponse:
    """A retention decision to its message."""
    return pb.ListRetentionCandidatesResponse(
        candidates=[
            pb.RetentionCandidate(
                metadata=segment_metadata_to_pb(candidate.metadata),
                reason=retention_reason_to_pb(candidate.reason),
            )
            for candidate in plan.candidates
        ],
        new_log_start_offset=plan.new_log_start_offset,
        remote_bytes=plan.remote_bytes,
    )


def retention_plan_from_pb(message: pb.ListRetentionCandidatesResponse) -> RetentionPlan:
    """A retention decision from its message.

    Raises:
        InvalidRequestError: a candidate is malformed.
    """
    moves = message.HasField("new_log_start_offset")
    return RetentionPlan(
        candidates=tuple(
            RetentionCandidate(
                metadata=segment_metadata_from_pb(candidate.metadata, "candidates.metadata"),
                reason=retention_reason_from_pb(candidate.reason, "candidates.reason"),
            )
            for candidate in message.candidates
        ),
        new_log_start_offset=message.new_log_start_offset if moves else None,
        remote_bytes=message.remote_bytes,
    )


def partition_change_to_pb(change: PartitionChange) -> pb.WatchPartitionResponse:
    """A change of a partition to its message."""
    segment, state = change.segment, change.delete_state
    return pb.WatchPartitionResponse(
        version=change.version,
        segment=None if segment is None else segment_metadata_to_pb(segment),
        delete_state=None if state is None else partition_delete_state_to_pb(state),
        earliest_log_offset=change.earliest_log_offset,
    )


def partition_change_from_pb(message: pb.WatchPartitionResponse) -> PartitionChange:
    """A change of a partition from its message.

    Raises:
        InvalidRequestError: the segment or the state is malformed.
    """
    return PartitionChange(
        version=message.version,
        segment=(
            segment_metadata_from_pb(message.segment, "segment")
            if message.HasField("segment")
            else None
        ),
        delete_state=(
            partition_delete_state_from_pb(message.delete_state, "delete_state")
            if message.HasField("delete_state")
            else None
        ),
        earliest_log_offset=(
            message.earliest_log_offset if message.HasField("earliest_log_offset") else None
        ),
    )


def segment_event_to_pb(event: SegmentEvent) -> pb.SegmentEvent:
    """A line of a segment's history to its message, which leaves out the segment id: the request has it."""
    return pb.SegmentEvent(
        sequence=event.sequence,
        from_state=(
            segment_pb2.REMOTE_LOG_SEGMENT_STATE_UNSPECIFIED
            if event.from_state is None
            else segment_state_to_pb(event.from_state)
        ),
        to_state=segment_state_to_pb(event.to_state),
        broker_id=event.broker_id,
        leader_epoch=event.leader_epoch,
        reason=event.reason,
        trace_id=event.trace_id,
        timestamp_ms=event.timestamp_ms,
    )


def segment_event_from_pb(message: pb.SegmentEvent, segment_id: RemoteLogSegmentId) -> SegmentEvent:
    """A line of a segment's history from its message and the segment that was asked for.

    Raises:
        InvalidRequestError: a state is unknown.
    """
    return SegmentEvent(
        sequence=message.sequence,
        segment_id=segment_id,
        from_state=(
            segment_state_from_pb(message.from_state, "from_state") if message.from_state else None
        ),
        to_state=segment_state_from_pb(message.to_state, "to_state"),
        broker_id=message.broker_id,
        leader_epoch=message.leader_epoch if message.HasField("leader_epoch") else None,
        reason=message.reason,
        trace_id=message.trace_id,
        timestamp_ms=message.timestamp_ms,
    )
