"""What operators see of a partition: offsets, lag, tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquifer_core.ids import TopicIdPartition
from aquifer_core.task_pauses import TaskPause

from aquifer_manager.domain.assignment import RegisteredPartition
from aquifer_manager.domain.ports import LogDescription, RolledSegment
from aquifer_manager.domain.tasks import TaskState
from aquifer_manager.domain.topic_config import TopicConfig

__all__ = ["CopyLag", "PartitionView", "copy_lag", "lag_of", "view_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """Rolled segments that are not remote.

    Attributes:
        age_ms: of the oldest one, by its newest record, and at least the time for which it is known to wait; 0 when there is none.
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
    pauses: tuple[TaskPause, ...]
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


def copy_lag(
    segments: Sequence[RolledSegment],
    highest_remote_offset: int,
    now_ms: int,
    lagging: tuple[int, int] | None = None,
) -> CopyLag:
    """The lag of a log, from its rolled segments and from what is remote: whether copies succeed or not (T03).

    Args:
        segments: rolled ones, oldest first.
        highest_remote_offset: how far remote storage reaches.
        now_ms: wall clock.
        lagging: see `PartitionWork`: timestamps are producers', and may be unknown or in the future.
    """
    waiting = [segment for segment in segments if segment.end_offset > highest_remote_offset]
    if not waiting:
        return CopyLag()
    oldest = waiting[0]
    times_ms = [now_ms]
    if oldest.max_timestamp_ms >= 0:
        times_ms.append(oldest.max_timestamp_ms)
    if lagging is not None and lagging[0] == oldest.base_offset:
        times_ms.append(lagging[1])
    return CopyLag(
        segments=len(waiting),
        size_bytes=sum(segment.size_bytes for segment in waiting),
        age_ms=now_ms - min(times_ms),
    )


def lag_of(partition: RegisteredPartition, now_ms: int) -> CopyLag:
    """The lag of a partition, from what was last heard of its log; none where nothing is to be copied (KIP-950)."""
    work, config = partition.work, partition.config
    copies = config.remote_storage_enable and not config.remote_log_copy_disable
    if work.observed is None or not copies:
        return CopyLag()
    return copy_lag(work.observed.segments, work.highest_remote_offset, now_ms, work.lagging)


def view_of(
    partition: RegisteredPartition,
    tasks: Sequence[TaskState],
    *,
    pauses: tuple[TaskPause, ...],
    now_ms: int,
) -> PartitionView:
    """The view of a registered partition, from what was last heard of its log."""
    work, log = partition.work, partition.work.observed
    return PartitionView(
        topic_id_partition=partition.topic_id_partition,
        leader_broker_id=-1 if partition.leader_broker_id is None else partition.leader_broker_id,
        leader_epoch=partition.leader_epoch,
        leader=partition.leader_broker_id is not None,
        tasks=tuple(tasks),
        pauses=pauses,
        log_start_offset=_or_unknown(log, "log_start_offset"),
        local_log_start_offset=_or_unknown(log, "local_log_start_offset"),
        highest_remote_offset=work.highest_remote_offset,
        last_stable_offset=_or_unknown(log, "last_stable_offset"),
        log_end_offset=_or_unknown(log, "log_end_offset"),
        lag=lag_of(partition, now_ms),
        copied_segments=work.copied_segments,
        copied_bytes=work.copied_bytes,
        deleted_segments=work.deleted_segments,
        config=partition.config,
    )


def _or_unknown(log: LogDescription | None, name: str) -> int:
    value: int = -1 if log is None else getattr(log, name)
    return value
