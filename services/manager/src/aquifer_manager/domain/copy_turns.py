"""When the copy quota lets a copy begin, without anybody holding a place while it waits (KIP-956)."""

from dataclasses import dataclass
from typing import Final

from aquifer_core.ports import Clock

from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.tasks import TaskKey

__all__ = ["CopyTurns"]

_KEPT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Bytes taken out of the quota for somebody who may begin at a time on the clock's monotonic scale."""

    at_s: float
    size_bytes: int


class CopyTurns:
    """Gives tasks their turns in the order in which they asked.

    A turn takes its bytes out of the quota at once, so whoever asks later waits longer. One that is not used for a minute after its
    time gives them back.
    """

    def __init__(self, quota: ByteQuota, *, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._turns: dict[TaskKey, _Turn] = {}

    def wait_s(self, key: TaskKey, size_bytes: int) -> float:
        """0: a copy of so many bytes may begin, which uses up the task's turn. Otherwise seconds until the turn comes."""
        now_s = self._clock.monotonic_s()
        self._drop_unused(now_s)
        turn = self._turns.get(key)
        if turn is None:
            turn = _Turn(at_s=now_s + self._quota.book(size_bytes), size_bytes=size_bytes)
            self._turns[key] = turn
        if turn.at_s > now_s:
            return turn.at_s - now_s
        del self._turns[key]
        self._quota.give_back(turn.size_bytes - size_bytes)
        return 0.0

    def _drop_unused(self, now_s: float) -> None:
        """The first ones are the oldest."""
        while self._turns:
            key, turn = next(iter(self._turns.items()))
            if turn.at_s > now_s - _KEPT_S:
                return
            del self._turns[key]
            self._quota.give_back(turn.size_bytes)
