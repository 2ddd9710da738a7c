"""Pauses of tasks."""

from collections.abc import Collection, Iterable

from aquifer.common.v1 import partition_pb2 as pb
from aquifer_core.ids import TopicIdPartition
from aquifer_core.task_pauses import PauseTarget, TaskPause

from aquifer_rpc.convert._partition import tip_from_pb, tip_to_pb


def task_pause_to_pb(pause: TaskPause) -> pb.TaskPause:
    """A pause to its message."""
    target = pause.target
    return pb.TaskPause(
        topic=pause.topic,
        partition=None if isinstance(target, str) else tip_to_pb(target),
        since_ms=pause.since_ms,
        paused_by=pause.paused_by,
        reason=pause.reason,
    )


def task_pause_from_pb(message: pb.TaskPause) -> TaskPause:
    """A pause from its message."""
    of_partition = message.HasField("partition")
    return TaskPause(
        target=tip_from_pb(message.partition, "partition") if of_partition else message.topic,
        since_ms=message.since_ms,
        paused_by=message.paused_by,
        reason=message.reason,
    )


def pause_targets_from_pb(
    partitions: Iterable[pb.TopicIdPartition], topics: Iterable[str]
) -> list[PauseTarget]:
    """What is to be paused or resumed, from the two fields that hold it."""
    return [*(tip_from_pb(tip, "partitions") for tip in partitions), *topics]


def pause_targets_to_pb(
    targets: Collection[PauseTarget],
) -> tuple[list[pb.TopicIdPartition], list[str]]:
    """Partitions and topics of what is to be paused or resumed."""
    return (
        [tip_to_pb(target) for target in targets if isinstance(target, TopicIdPartition)],
        [target for target in targets if isinstance(target, str)],
    )
