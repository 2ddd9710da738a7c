"""How runs of tasks end that do not succeed."""

import asyncio

from aquifer_core.errors import DeadlineExceededError, ErrorReason, RemoteResourceNotFoundError

from aquifer_manager.domain.tasks import TaskKey

__all__ = ["explained", "foreign_error", "is_really_cancelled", "no_such_task"]


def explained(
    lane: str, key: TaskKey, error: BaseException, limit_s: float | None
) -> BaseException:
    """The error of a run; with `limit_s` the run's deadline is over, and a TimeoutError is its doing."""
    if limit_s is None or not isinstance(error, TimeoutError):
        return error
    made = DeadlineExceededError(
        f"{lane} of {key.topic_id_partition} took longer than {limit_s:g} s"
    )
    made.__cause__ = error
    return made


def is_really_cancelled(error: BaseException) -> bool:
    """Tells a cancellation of this run from a CancelledError that some code inside let escape."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def foreign_error(error: BaseException) -> RuntimeError:
    """What to raise for something that is no `Exception`."""
    wrapped = RuntimeError(f"the run ended with {error!r}")
    wrapped.__cause__ = error
    return wrapped


def no_such_task(key: TaskKey) -> RemoteResourceNotFoundError:
    """The refusal of a task that is not there."""
    return RemoteResourceNotFoundError(
        f"{key.topic_id_partition} has no {key.type.name} task here",
        reason=ErrorReason.PARTITION_NOT_FOUND,
        metadata={"topicIdPartition": str(key.topic_id_partition)},
    )
