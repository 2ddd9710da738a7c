"""Domain values of the manager <-> messages of `aquifer.manager.v1`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from aquifer.common.v1 import partition_pb2 as common
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.errors import InvalidRequestError
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_rpc import convert

from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.fetch_plan import FetchPlan, FetchRequest
from aquifer_manager.domain.offset_for_timestamp import FoundOffset, TimestampQuery
from aquifer_manager.domain.partition_view import PartitionView
from aquifer_manager.domain.tasks import TaskAction, TaskState, TaskType
from aquifer_manager.domain.topic_config import TopicConfig

__all__ = [
    "action_to_pb",
    "fetch_plan_to_pb",
    "fetch_request_from_pb",
    "found_offset_to_pb",
    "plan_request_from_pb",
    "role_from_pb",
    "scrub_options_from_pb",
    "task_type_from_pb",
    "timestamp_query_from_pb",
    "tip_of",
    "topic_config_from_pb",
    "topic_config_to_pb",
    "view_pages",
    "view_to_pb",
]

_PARTITIONS_A_MESSAGE: Final = 500


class _OfPartition(Protocol):
    @property
    def topic_id_partition(self) -> common.TopicIdPartition:
        """The partition asked about."""
        ...


def tip_of(request: _OfPartition) -> TopicIdPartition:
    """The partition of a request; refuses one without topic id."""
    return convert.tip_from_pb(request.topic_id_partition)


def topic_config_from_pb(config: common.TopicConfig) -> TopicConfig:
    """Settings of a topic from their message."""
    minutes = config.HasField("remote_log_retention_minutes")
    size_bytes = config.HasField("remote_log_retention_bytes")
    return TopicConfig(
        remote_storage_enable=config.remote_storage_enable,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        local_retention_ms=config.local_retention_ms,
        local_retention_bytes=config.local_retention_bytes,
        remote_log_copy_disable=config.remote_log_copy_disable,
        remote_log_retention_minutes=config.remote_log_retention_minutes if minutes else None,
        remote_log_retention_bytes=config.remote_log_retention_bytes if size_bytes else None,
    )


def topic_config_to_pb(config: TopicConfig) -> common.TopicConfig:
    """Settings of a topic to their message."""
    return common.TopicConfig(
        remote_storage_enable=config.remote_storage_enable,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        local_retention_ms=config.local_retention_ms,
        local_retention_bytes=config.local_retention_bytes,
        remote_log_copy_disable=config.remote_log_copy_disable,
        remote_log_retention_minutes=config.remote_log_retention_minutes,
        remote_log_retention_bytes=config.remote_log_retention_bytes,
    )


def role_from_pb(message: pb.LeaderPartition, field: str) -> PartitionRole:
    """An announced partition from its message.

    Raises:
        InvalidRequestError: partition or settings are missing.
    """
    tip = convert.required(message, "topic_id_partition", message.topic_id_partition, field)
    config = convert.required(message, "config", message.config, field)
    return PartitionRole(
        topic_id_partition=convert.tip_from_pb(tip, f"{field}.topic_id_partition"),
        leader_epoch=message.leader_epoch,
        config=topic_config_from_pb(config),
    )


def fetch_request_from_pb(message: pb.FetchRequest | pb.PlanFetchRequest) -> FetchRequest:
    """A fetch from its message."""
    return FetchRequest(
        topic_id_partition=convert.tip_from_pb(message.topic_id_partition),
        leader_epoch=message.leader_epoch,
        fetch_offset=message.fetch_offset,
        max_bytes=message.max_bytes,
        min_one_batch=message.min_one_batch,
        isolation_level=convert.isolation_from_pb(message.isolation_level),
        lineage=tuple(
            LeaderEpochEntry(entry.epoch, entry.start_offset) for entry in message.lineage
        ),
        local_log_start_offset=(
            message.local_log_start_offset if message.HasField("local_log_start_offset") else None
        ),
    )


def plan_request_from_pb(message: pb.PlanFetchRequest) -> FetchRequest:
    """A question for a plan from its message."""
    return replace(
        fetch_request_from_pb(message), reach_bytes=message.reach_bytes, fresh=message.fresh
    )


def fetch_plan_to_pb(plan: FetchPlan) -> pb.FetchPlan:
    """A plan to its message."""
    message = pb.FetchPlan(
        fetch_offset=plan.fetch_offset,
        max_bytes=plan.max_bytes,
        aborted_transactions=[_aborted_to_pb(entry) for entry in plan.aborted],
        reusable=plan.reusable,
        following=map(convert.segment_metadata_to_pb, plan.following),
    )
    if plan.segment is not None:
        message.segment.CopyFrom(convert.segment_metadata_to_pb(plan.segment))
    if plan.next_segment is not None:
        message.next_segment.CopyFrom(convert.segment_metadata_to_pb(plan.next_segment))
    return message


def timestamp_query_from_pb(message: pb.FindOffsetForTimestampRequest) -> TimestampQuery:
    """A search by time from its message."""
    return TimestampQuery(
        topic_id_partition=convert.tip_from_pb(message.topic_id_partition),
        lineage=convert.lineage_from_pb(message.lineage),
        timestamp_ms=message.timestamp_ms,
        log_start_offset=message.log_start_offset,
        local_log_start_offset=message.local_log_start_offset,
    )


def found_offset_to_pb(found: FoundOffset | None) -> pb.FindOffsetForTimestampResponse:
    """A record found by time, or none, to its message."""
    if found is None:
        return pb.FindOffsetForTimestampResponse(timestamp_ms=-1, leader_epoch=-1)
    return pb.FindOffsetForTimestampResponse(
        offset=found.offset, timestamp_ms=found.timestamp_ms, leader_epoch=found.leader_epoch
    )


def task_type_from_pb(number: int) -> TaskType:
    """A kind of task from its enum.

    Raises:
        InvalidRequestError: unspecified or unknown.
    """
    try:
        return TaskType(number)
    except ValueError as error:
        raise InvalidRequestError(
            f"type has the unknown value {number}", metadata={"field": "type"}
        ) from error


def scrub_options_from_pb(request: pb.RunTaskRequest) -> tuple[bool, bool]:
    """Whether a scrub reads every byte, and whether it heals.

    Raises:
        InvalidRequestError: healing together with a dry run.
    """
    if request.heal and request.dry_run:
        raise InvalidRequestError("heal changes something, dry_run does not; ask for one of them")
    return not (request.dry_run or request.shallow), request.heal


def action_to_pb(action: TaskAction) -> pb.TaskAction:
    """Something that a run did to its message."""
    return pb.TaskAction(
        segment=convert.segment_metadata_to_pb(action.segment),
        action=action.action.value,
        reason=action.reason,
        remedy=action.remedy.value,
        healed=action.healed,
        detail=action.detail,
    )


def view_to_pb(view: PartitionView) -> pb.PartitionState:
    """State of a partition to its message."""
    return pb.PartitionState(
        topic_id_partition=convert.tip_to_pb(view.topic_id_partition),
        leader_broker_id=view.leader_broker_id,
        leader_epoch=view.leader_epoch,
        leader=view.leader,
        tasks=[_task_to_pb(task) for task in view.tasks],
        paused=bool(view.pauses),
        pauses=map(convert.task_pause_to_pb, view.pauses),
        log_start_offset=view.log_start_offset,
        local_log_start_offset=view.local_log_start_offset,
        highest_remote_offset=view.highest_remote_offset,
        last_stable_offset=view.last_stable_offset,
        log_end_offset=view.log_end_offset,
        copy_lag_bytes=view.lag.size_bytes,
        copy_lag_segments=view.lag.segments,
        copy_lag_ms=view.lag.age_ms,
        copied_segments=view.copied_segments,
        copied_bytes=view.copied_bytes,
        deleted_segments=view.deleted_segments,
        config=topic_config_to_pb(view.config),
    )


def view_pages(views: Iterable[PartitionView]) -> Iterator[list[pb.PartitionState]]:
    """Views in messages of at most 500, taken as they are needed."""
    left = map(view_to_pb, views)
    while page := list(islice(left, _PARTITIONS_A_MESSAGE)):
        yield page


def _task_to_pb(task: TaskState) -> pb.TaskState:
    return pb.TaskState(
        type=pb.TaskType.ValueType(task.key.type.value),
        running=task.running,
        next_run_in_ms=max(task.next_run_in_ms, 0),
        since_success_ms=task.since_success_ms,
        consecutive_failures=task.consecutive_failures,
        last_error_reason=task.last_error_reason,
        last_error=task.last_error,
        runs=task.runs,
    )


def _aborted_to_pb(entry: AbortedTransaction) -> common.AbortedTransaction:
    return common.AbortedTransaction(
        producer_id=entry.producer_id,
        first_offset=entry.first_offset,
        last_offset=entry.last_offset,
    )
