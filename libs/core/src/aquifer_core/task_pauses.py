"""Pauses of tasks as durable facts: an ability that a RemoteLogMetadataManager may have."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

from aquifer_core.errors import InternalError, InvalidRequestError
from aquifer_core.ids import TopicIdPartition

__all__ = [
    "PauseTarget",
    "PausesUnsupportedError",
    "TaskPause",
    "TaskPauses",
    "check_new_pauses",
]

_MOST_CHARACTERS: Final = 1000

PauseTarget: TypeAlias = TopicIdPartition | str
"""A partition, or all partitions of the topic with a name, whatever its id is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPause:
    """An operator's wish that no copies and expirations begin.

    Attributes:
        target: what is paused.
        since_ms: since when, by the wall clock.
        paused_by: who asked for it, for people; empty: not told.
        reason: why, for people; empty: not told.
    """

    target: PauseTarget
    since_ms: int
    paused_by: str = ""
    reason: str = ""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.target if isinstance(self.target, str) else self.target.topic


class PausesUnsupportedError(InternalError):
    """The service is of a version that keeps no pauses."""


@runtime_checkable
class TaskPauses(Protocol):
    """Remembers what operators have paused, for whoever works for partitions."""

    async def pause_tasks(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> None:
        """Pauses partitions and topics; idempotent: what is paused already stays as it was paused.

        Raises:
            InvalidRequestError: see `check_new_pauses`.
            RemoteStorageUnavailableError: they may be paused; repeat it.
            PausesUnsupportedError: the service behind it is too old.
        """
        ...

    async def resume_tasks(self, targets: Collection[PauseTarget]) -> None:
        """Ends these pauses, and no others: a partition of a paused topic stays paused. Idempotent.

        Raises:
            RemoteStorageUnavailableError: they may be resumed; repeat it.
            PausesUnsupportedError: the service behind it is too old.
        """
        ...

    def list_task_pauses(self) -> AsyncIterator[TaskPause]:
        """Everything that is paused, by topic.

        Raises:
            RemoteStorageUnavailableError: the facts cannot be had.
            PausesUnsupportedError: the service behind it is too old.
        """
        ...


def check_new_pauses(targets: Collection[PauseTarget], paused_by: str, reason: str) -> None:
    """Makes sure that pauses can be kept.

    Raises:
        InvalidRequestError: a topic has no name, or a text is too long or holds a NUL.
    """
    if "" in targets:
        raise InvalidRequestError("a topic without name cannot be paused")
    for name, text in (("paused_by", paused_by), ("reason", reason)):
        if len(text) > _MOST_CHARACTERS or "\0" in text:
            raise InvalidRequestError(
                f"{name} must have at most {_MOST_CHARACTERS} characters and no NUL",
                metadata={"field": name},
            )
