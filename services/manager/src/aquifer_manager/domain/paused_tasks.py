"""What operators have paused: facts of metadata that every manager knows, and none begins a run without (decision 36)."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import structlog
from aquifer_core.errors import AquiferError, RemoteStorageUnavailableError
from aquifer_core.gathered import GatheredQuestions
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.task_pauses import (
    PausesUnsupportedError,
    PauseTarget,
    TaskPause,
    TaskPauses,
    check_new_pauses,
)

from aquifer_manager.domain.backoff import RETRIABLE
from aquifer_manager.domain.streams import closing

__all__ = ["PausedTasks"]

logger = structlog.get_logger(__name__)

_MOST_TOGETHER: Final = 1000
_MOST_NAMES: Final = 20


class PausedTasks:
    """Asks metadata for all pauses at once, and trusts the answer for a while.

    What metadata of an older version cannot keep is held in memory, as is what metadata could not be told.
    """

    def __init__(
        self, metadata: RemoteLogMetadataManager, *, clock: Clock, fresh_for_s: float
    ) -> None:
        """Prepares; nothing is known yet.

        Args:
            metadata: keeps the pauses, if it is able to.
            clock: measures; of the pauses in memory.
            fresh_for_s: no run begins on an answer of that age.
        """
        self._metadata = metadata if isinstance(metadata, TaskPauses) else None
        self._clock = clock
        self._fresh_for_s = fresh_for_s
        self._durable: dict[PauseTarget, TaskPause] = {}
        self._held: dict[PauseTarget, TaskPause] = {}
        self._asked_s = float("-inf")
        self._told_unsupported = False
        self._on_resumed: Callable[[Collection[PauseTarget]], None] = lambda _: None
        # A listing that began before a change would undo it here.
        self._in_turn = asyncio.Lock()
        self._looks: GatheredQuestions[None, None] = GatheredQuestions(
            self._look, most_at_once=1, most_together=_MOST_TOGETHER, is_of_one=lambda _: False
        )

    def watch(self, on_resumed: Callable[[Collection[PauseTarget]], None]) -> None:
        """Names who is told what is not paused any more, by whomever it was resumed."""
        self._on_resumed = on_resumed

    def of(self, tip: TopicIdPartition) -> tuple[TaskPause, ...]:
        """The pauses that hold a partition, as far as is known: its own, its topic's, or both."""
        found = (self._durable.get(target) or self._held.get(target) for target in (tip, tip.topic))
        return tuple(pause for pause in found if pause is not None)

    def holds(self, tip: TopicIdPartition) -> bool:
        """Whether a partition is paused, as far as is known."""
        return bool(self.of(tip))

    async def settle(self) -> None:
        """Makes sure that what is known is not older than a run may trust; asks nothing while it is.

        Raises:
            AquiferError: metadata did not answer: nothing may begin.
        """
        age_s = self._clock.monotonic_s() - self._asked_s
        if self._metadata is not None and age_s >= self._fresh_for_s:
            await self._looks.answer(None)

    async def look(self) -> None:
        """Asks metadata; the body of a loop.

        Raises:
            AquiferError: metadata did not answer. What was known stays known.
        """
        if self._metadata is not None:
            await self._looks.answer(None)

    async def pause(
        self, targets: Collection[PauseTarget], *, paused_by: str = "", reason: str = ""
    ) -> bool:
        """Pauses here at once, then for all managers; idempotent.

        Returns:
            Whether metadata has it.

        Raises:
            InvalidRequestError: see `check_new_pauses`.
            RemoteStorageUnavailableError: metadata could not be told; it is paused here.
        """
        check_new_pauses(targets, paused_by, reason)
        new = {
            target: TaskPause(
                target=target, since_ms=self._clock.now_ms(), paused_by=paused_by, reason=reason
            )
            for target in targets
        }
        self._held = new | self._held
        if self._metadata is None:
            return False
        try:
            async with self._in_turn:
                await self._metadata.pause_tasks(targets, paused_by=paused_by, reason=reason)
                self._durable = new | self._durable
        except PausesUnsupportedError:
            self._tell_unsupported()
            return False
        except RETRIABLE as error:
            raise _untold("paused at this manager only", error) from error
        self._release(targets)
        _log("tasks_paused", targets, paused_by=paused_by, reason=reason)
        with suppress(
            AquiferError
        ):  # the loop finds out likewise what was paused before, by whom and when
            await self.look()
        return True

    async def resume(self, targets: Collection[PauseTarget]) -> bool:
        """Ends pauses for all managers; idempotent.

        Returns:
            Whether metadata has it.

        Raises:
            RemoteStorageUnavailableError: metadata could not be told; everything is paused as before.
        """
        durable = self._metadata is not None
        if self._metadata is not None:
            try:
                async with self._in_turn:
                    await self._metadata.resume_tasks(targets)
                    self._durable = _without(self._durable, targets)
            except PausesUnsupportedError:
                self._tell_unsupported()
                durable = False
            except RETRIABLE as error:
                raise _untold("paused as before", error) from error
        self._release(targets)
        _log("tasks_resumed", targets)
        self._on_resumed(targets)
        return durable

    async def _look(self, asked: Sequence[None]) -> list[None]:
        assert self._metadata is not None
        async with self._in_turn:
            asked_s = self._clock.monotonic_s()
            try:
                async with closing(self._metadata.list_task_pauses()) as listing:
                    found = {pause.target: pause async for pause in listing}
            except PausesUnsupportedError:
                self._tell_unsupported()
            else:
                self._take(found)
            self._asked_s = asked_s
        return [None] * len(asked)

    def _take(self, found: dict[PauseTarget, TaskPause]) -> None:
        begun = found.keys() - self._durable.keys()
        ended = self._durable.keys() - found.keys()
        self._durable = found
        if begun:
            _log("tasks_paused", begun)
        if ended:
            _log("tasks_resumed", ended)
            self._on_resumed(ended)

    def _release(self, targets: Collection[PauseTarget]) -> None:
        self._held = _without(self._held, targets)

    def _tell_unsupported(self) -> None:
        if not self._told_unsupported:
            self._told_unsupported = True
            logger.warning("pauses_in_memory_only", remedy="upgrade the metadata service")


def _without(
    pauses: dict[PauseTarget, TaskPause], targets: Collection[PauseTarget]
) -> dict[PauseTarget, TaskPause]:
    return {target: pause for target, pause in pauses.items() if target not in targets}


def _log(event: str, targets: Collection[PauseTarget], **told: str) -> None:
    names = sorted(map(str, targets))[:_MOST_NAMES]
    logger.info(event, pauses=len(targets), some=names, **told)


def _untold(what: str, error: AquiferError) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        f"{what}: metadata could not be told; repeat it when it answers: {error.message}",
        reason=error.reason,
    )
