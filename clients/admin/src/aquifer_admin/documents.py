"""What the commands say, as plain documents; field names are stable, units are in them, null means none or unknown."""

from collections.abc import Iterable
from typing import Any

from aquifer.common.v1 import partition_pb2, segment_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb2
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2

Document = dict[str, Any]

REMOTE_STORAGE_ENABLE = "remote.storage.enable"


def segment(metadata: segment_pb2.RemoteLogSegmentMetadata) -> Document:
    """One copy of a segment, as metadata knows it."""
    where = metadata.segment_id.topic_id_partition
    return {
        "segment_id": metadata.segment_id.id,
        "topic": where.topic,
        "topic_id": where.topic_id,
        "partition": where.partition,
        "state": segment_state(metadata.state),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "size_bytes": metadata.segment_size_bytes,
        "max_timestamp_ms": _or_none(metadata.max_timestamp_ms),
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "broker_id": metadata.broker_id,
        "leader_epochs": [
            {"epoch": epoch, "start_offset": start}
            for epoch, start in sorted(metadata.segment_leader_epochs.items())
        ],
        "txn_index_empty": metadata.txn_index_empty,
    }


def stored_segment(stored: segment_pb2.StoredSegment) -> Document:
    """One copy of a segment, as the store's manifest describes it."""
    return {
        "object_keys": list(stored.object_keys),
        "stored_bytes": stored.stored_bytes,
        "original_bytes": stored.original_bytes,
        "chunk_count": stored.chunk_count,
        "codec": stored.codec,
        "key_id": stored.key_id if stored.HasField("key_id") else None,
        "sha256": dict(sorted(stored.sha256.items())),
        "writer_version": stored.writer_version,
    }


def segment_event(event: facts_pb2.SegmentEvent) -> Document:
    """One line of a segment's history."""
    return {
        "sequence": event.sequence,
        "timestamp_ms": event.timestamp_ms,
        "from_state": segment_state(event.from_state) if event.from_state else None,
        "to_state": segment_state(event.to_state),
        "broker_id": event.broker_id,
        "leader_epoch": event.leader_epoch if event.HasField("leader_epoch") else None,
        "reason": event.reason or None,
        "trace_id": event.trace_id or None,
    }


def finding(found: storage_pb2.VerifyFinding) -> Document:
    """Something wrong with a stored segment."""
    return {
        "part": found.part,
        "chunk": found.chunk if found.HasField("chunk") else None,
        "position": found.position if found.HasField("position") else None,
        "message": found.message,
    }


def store_check(result: storage_pb2.CheckStoreResponse) -> Document:
    """One check of the object store."""
    return {
        "check": result.name,
        "outcome": enum_name(storage_pb2.CheckOutcome, result.outcome, "CHECK_OUTCOME_").lower(),
        "message": result.message,
        "duration_ms": result.duration_ms,
    }


def topic(known: cluster_pb2.Topic) -> Document:
    """A topic in one line."""
    return {
        "topic": known.name,
        "topic_id": known.topic_id,
        "partition_count": len(known.partitions),
        "replication_factor": max((len(each.replicas) for each in known.partitions), default=0),
        "leaderless_partitions": sum(each.leader < 0 for each in known.partitions),
        "tiered": known.configs.get(REMOTE_STORAGE_ENABLE, "false").lower() == "true",
        "configs": dict(sorted(known.configs.items())),
        "remote_segments": None,
        "remote_bytes": None,
    }


def topic_partition(known: cluster_pb2.Partition) -> Document:
    """A partition as the cluster knows it."""
    return {
        "partition": known.partition,
        "leader": _or_none(known.leader),
        "leader_epoch": known.leader_epoch,
        "replicas": list(known.replicas),
        "isr": list(known.isr),
        "remote_segments": None,
        "remote_bytes": None,
    }


def topic_outcome(result: cluster_pb2.TopicResult) -> Document:
    """What became of one topic of a request."""
    return {
        "topic": result.name,
        "topic_id": result.topic_id or None,
        "error_reason": result.error_reason or None,
        "error": result.error_message or None,
    }


def partition_state(state: manager_pb2.PartitionState, manager: str) -> Document:
    """A partition as its manager works on it, with the five offsets."""
    where = state.topic_id_partition
    tasks = [task_state(task) for task in state.tasks]
    failing = [task for task in tasks if task["last_error_reason"] is not None]
    return {
        "topic": where.topic,
        "topic_id": where.topic_id,
        "partition": where.partition,
        "manager": manager,
        "leader": state.leader,
        "leader_broker_id": state.leader_broker_id,
        "leader_epoch": state.leader_epoch,
        "paused": state.paused,
        "pauses": [task_pause(pause) for pause in state.pauses],
        "log_start_offset": state.log_start_offset,
        "local_log_start_offset": state.local_log_start_offset,
        "highest_remote_offset": _or_none(state.highest_remote_offset),
        "last_stable_offset": state.last_stable_offset,
        "log_end_offset": state.log_end_offset,
        "copy_lag_bytes": state.copy_lag_bytes,
        "copy_lag_segments": state.copy_lag_segments,
        "copy_lag_ms": state.copy_lag_ms,
        "copied_segments": state.copied_segments,
        "copied_bytes": state.copied_bytes,
        "deleted_segments": state.deleted_segments,
        "next_run_in_ms": min((task["next_run_in_ms"] for task in tasks), default=None),
        "last_error_reason": failing[0]["last_error_reason"] if failing else None,
        "last_error": failing[0]["last_error"] if failing else None,
        "tasks": tasks,
    }


def task_pause(pause: partition_pb2.TaskPause) -> Document:
    """Something that an operator paused; without partition the whole topic."""
    of_partition = pause.HasField("partition")
    return {
        "topic": pause.topic,
        "partition": pause.partition.partition if of_partition else None,
        "topic_id": pause.partition.topic_id if of_partition else None,
        "since_ms": pause.since_ms,
        "paused_by": pause.paused_by or None,
        "reason": pause.reason or None,
    }


def task_state(task: manager_pb2.TaskState) -> Document:
    """One task of a partition."""
    return {
        "task": task_name(task.type),
        "running": task.running,
        "next_run_in_ms": task.next_run_in_ms,
        "since_success_ms": _or_none(task.since_success_ms),
        "runs": task.runs,
        "consecutive_failures": task.consecutive_failures,
        "last_error_reason": task.last_error_reason or None,
        "last_error": task.last_error or None,
    }


def task_action(action: manager_pb2.TaskAction) -> Document:
    """Something a run did, or would do."""
    return {
        "action": action.action,
        "reason": action.reason,
        "remedy": action.remedy or None,
        "healed": action.healed,
        "detail": action.detail or None,
        **segment(action.segment),
    }


def task_name(task_type: int) -> str:
    """`copy` for TASK_TYPE_COPY; the number for one that this version does not know."""
    return enum_name(manager_pb2.TaskType, task_type, "TASK_TYPE_").lower()


def segment_state(state: int) -> str:
    """`COPY_SEGMENT_FINISHED` and so on; the number for one that this version does not know."""
    return enum_name(segment_pb2.RemoteLogSegmentState, state, "REMOTE_LOG_SEGMENT_STATE_")


def remote_totals(segments: Iterable[segment_pb2.RemoteLogSegmentMetadata]) -> tuple[int, int]:
    """Number and bytes of the finished segments, duplicates included."""
    finished = segment_pb2.REMOTE_LOG_SEGMENT_STATE_COPY_SEGMENT_FINISHED
    sizes = [each.segment_size_bytes for each in segments if each.state == finished]
    return len(sizes), sum(sizes)


def enum_name(enum: Any, number: int, prefix: str) -> str:
    """Name of a value of the contracts, without what all names begin with; the number for one that this version does not know."""
    known = dict(zip(enum.values(), enum.keys(), strict=True))
    return str(known.get(number, number)).removeprefix(prefix)


def _or_none(value: int) -> int | None:
    return None if value < 0 else value
