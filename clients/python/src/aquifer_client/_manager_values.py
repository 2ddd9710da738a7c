"""What the manager says about partitions and their tasks."""

from dataclasses import dataclass
from enum import IntEnum

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_rpc import convert


class TaskType(IntEnum):
    """Tasks of a partition; values as in the contract. `UNKNOWN` is one that only a newer manager has."""

    UNKNOWN = 0
    COPY = 1
    EXPIRATION = 2
    FOLLOWER = 3
    PARTITION_DELETION = 4
    SCRUB = 5


_KNOWN_TYPES: frozenset[int] = frozenset(TaskType)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """State of one task.

    Attributes:
        next_run_in_ms: 0 when due.
        since_success_ms: age of the last success; None when there was none.
        last_error_reason: reason of the last failure; empty after a success.
    """

    type: TaskType
    running: bool
    next_run_in_ms: int
    since_success_ms: int | None
    consecutive_failures: int
    last_error_reason: str
    last_error: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """State of one partition as its manager sees it.

    Attributes:
        leader: whether this manager works for the leader.
        log_start_offset: Rx.
        local_log_start_offset: Lx.
        highest_remote_offset: Ry; None when nothing is remote.
        last_stable_offset: Ly.
        log_end_offset: Lz.
        copy_lag_bytes, copy_lag_segments: rolled, and not remote yet.
        copy_lag_ms: age of the oldest rolled segment that is not remote yet, by its newest record; 0 for none.
    """

    topic_id_partition: TopicIdPartition
    leader_broker_id: int
    leader_epoch: int
    leader: bool
    paused: bool
    tasks: tuple[TaskState, ...]
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int | None
    last_stable_offset: int
    log_end_offset: int
    copy_lag_bytes: int
    copy_lag_segments: int
    copy_lag_ms: int
    copied_segments: int
    copied_bytes: int
    deleted_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAction:
    """Something a run of a task did, or would do.

    Attributes:
        action: `copied`, `deleted`, `missing`, `extra` or `corrupt`.
        reason: a stable code.
    """

    segment: RemoteLogSegmentMetadata
    action: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFetchPlan:
    """What a read of the cold part returns, before its data.

    Attributes:
        segment: None when no batch at or after the offset is remote.
        fetch_offset: where to read the segment; differs from the offset asked for after a hole.
        max_bytes: most bytes to read.
        aborted_transactions: (producer id, first offset), for READ_COMMITTED.
        next_segment: for read-ahead.
    """

    segment: RemoteLogSegmentMetadata | None
    fetch_offset: int
    max_bytes: int
    aborted_transactions: tuple[tuple[int, int], ...]
    next_segment: RemoteLogSegmentMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """The first remote record at or after a timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def partition_state_from_pb(message: pb.PartitionState) -> PartitionState:
    """A partition's state from its message."""
    highest = message.highest_remote_offset
    return PartitionState(
        topic_id_partition=convert.tip_from_pb(message.topic_id_partition),
        leader_broker_id=message.leader_broker_id,
        leader_epoch=message.leader_epoch,
        leader=message.leader,
        paused=message.paused,
        tasks=tuple(map(_task_from_pb, message.tasks)),
        log_start_offset=message.log_start_offset,
        local_log_start_offset=message.local_log_start_offset,
        highest_remote_offset=None if highest < 0 else highest,
        last_stable_offset=message.last_stable_offset,
        log_end_offset=message.log_end_offset,
        copy_lag_bytes=message.copy_lag_bytes,
        copy_lag_segments=message.copy_lag_segments,
        copy_lag_ms=message.copy_lag_ms,
        copied_segments=message.copied_segments,
        copied_bytes=message.copied_bytes,
        deleted_segments=message.deleted_segments,
    )


def action_from_pb(message: pb.TaskAction) -> TaskAction:
    """What a run did, from its message."""
    return TaskAction(
        segment=convert.segment_metadata_from_pb(message.segment, "segment"),
        action=message.action,
        reason=message.reason,
    )


def plan_from_pb(message: pb.FetchPlan) -> RemoteFetchPlan:
    """A plan from its message."""
    return RemoteFetchPlan(
        segment=(
            convert.segment_metadata_from_pb(message.segment, "segment")
            if message.HasField("segment")
            else None
        ),
        fetch_offset=message.fetch_offset,
        max_bytes=message.max_bytes,
        aborted_transactions=tuple(
            (aborted.producer_id, aborted.first_offset) for aborted in message.aborted_transactions
        ),
        next_segment=(
            convert.segment_metadata_from_pb(message.next_segment, "next_segment")
            if message.HasField("next_segment")
            else None
        ),
    )


def _task_from_pb(message: pb.TaskState) -> TaskState:
    return TaskState(
        type=TaskType(message.type) if message.type in _KNOWN_TYPES else TaskType.UNKNOWN,
        running=message.running,
        next_run_in_ms=message.next_run_in_ms,
        since_success_ms=None if message.since_success_ms < 0 else message.since_success_ms,
        consecutive_failures=message.consecutive_failures,
        last_error_reason=message.last_error_reason,
        last_error=message.last_error,
        runs=message.runs,
    )
