"""What operators see of a partition: offsets, lag, tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquifer_core.ids import TopicIdPartition

from aquifer_manager.domain.assignment import RegisteredPartition
from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.ports import LogDescription, RolledSegment
from aquifer_manager.domain.tasks import TaskState
from aquifer_manager.domain.topic_config import TopicConfig

__all__ = ["CopyLag", "PartitionView", "copy_lag", "lag_of", "view_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """Rolled segments that are not remote.

    Attributes:
        age_ms: of the oldest one, by its newest record; 0 when there is none or its time is unknown.
    """

    segments: int = 0
    size_bytes: int = 0
    age_ms: int = 0

    def __add__(self, other: "CopyLag") -> "CopyLag":
        return CopyLag(
            segments=self.segments + other.segments,
            size_bytes=self.size_bytes + other.size_bytes,
            age_ms=max(self.age_ms, other.age_ms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """State of one partition; offsets are -1 while unknown."""

    topic_id_partition: TopicIdPartition
    leader_broker_id: int
    leader_epoch: int
    leader: bool
    tasks: tuple[TaskState, ...]
    paused: bool
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int
    last_stable_offset: int
    log_end_offset: int
    lag: CopyLag
    copied_segments: int
    copied_bytes: int
    deleted_segments: int
    config: TopicConfig

    def timeless(self) -> "PartitionView":
        """The view without what changes by the mere passing of time."""
        tasks = tuple(
            replace(
                task,
                next_run_in_ms=0,
                since_success_ms=min(task.since_success_ms, 0),
                without_success_ms=0,
            )
            for task in self.tasks
        )
        return replace(self, tasks=tasks, lag=replace(self.lag, age_ms=0))


def copy_lag(segments: Sequence[RolledSegment], highest_remote_offset: int, now_ms: int) -> CopyLag:
    """The lag of a log, from its rolled segments and from what is remote: whether copies succeed or not (T03)."""
    waiting = [segment for segment in segments if segment.end_offset > highest_remote_offset]
    if not waiting:
        return CopyLag()
    newest_ms = waiting[0].max_timestamp_ms
    return CopyLag(
        segments=len(waiting),
        size_bytes=sum(segment.size_bytes for segment in waiting),
        age_ms=max(0, now_ms - newest_ms) if newest_ms >= 0 else 0,
    )


def lag_of(partition: RegisteredPartition, now_ms: int) -> CopyLag:
    """The lag of a partition, from what was last heard of its log; none where nothing is to be copied (KIP-950)."""
    work, config = partition.work, partition.config
    copies = config.remote_storage_enable and not config.remote_log_copy_disable
    if work.observed is None or not copies:
        return CopyLag()
    return copy_lag(work.observed.segments, _highest_remote_offset(work), now_ms)


def view_of(
    partition: RegisteredPartition, tasks: Sequence[TaskState], *, paused: bool, now_ms: int
) -> PartitionView:
    """The view of a registered partition, from what was last heard of its log."""
    work, log = partition.work, partition.work.observed
    return PartitionView(
        topic_id_partition=partition.topic_id_partition,
        leader_broker_id=-1 if partition.leader_broker_id is None else partition.leader_broker_id,
        leader_epoch=partition.leader_epoch,
        leader=partition.leader_broker_id is not None,
        tasks=tuple(tasks),
        paused=paused,
        log_start_offset=_or_unknown(log, "log_start_offset"),
        local_log_start_offset=_or_unknown(log, "local_log_start_offset"),
        highest_remote_offset=_highest_remote_offset(work),
        last_stable_offset=_or_unknown(log, "last_stable_offset"),
        log_end_offset=_or_unknown(log, "log_end_offset"),
        lag=lag_of(partition, now_ms),
        copied_segments=work.copied_segments,
        copied_bytes=work.copied_bytes,
        deleted_segments=work.deleted_segments,
        config=partition.config,
    )


def _highest_remote_offset(work: PartitionWork) -> int:
    heard = -1 if work.observed is None else work.observed.highest_remote_offset
    return heard if work.copied_offset is None else max(heard, work.copied_offset)


def _or_unknown(log: LogDescription | None, name: str) -> int:
    value: int = -1 if log is None else getattr(log, name)
    return value
