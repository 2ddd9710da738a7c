"""Writes of a group's offsets wait for each other where they meet."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

__all__ = ["OffsetTurns"]

_WAIT_S: Final = 5.0


@dataclass(slots=True, eq=False)
class _Turn:
    partitions: frozenset[tuple[str, int]] | None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, other: "_Turn") -> bool:
        if self.partitions is None or other.partitions is None:
            return True
        return not self.partitions.isdisjoint(other.partitions)


class OffsetTurns:
    """One writer of an offset at a time, in order of asking.

    A write that hangs, or is repeated below, would otherwise land on one that was admitted after it, and take a group back.
    """

    def __init__(self) -> None:
        self._turns: dict[str, list[_Turn]] = {}

    @asynccontextmanager
    async def of(
        self, group_id: str, partitions: Collection[tuple[str, int]] | None
    ) -> AsyncIterator[None]:
        """Waits for those before that write the same partitions; None: all of the group.

        Raises:
            TimeoutError: they took longer than a call may take.
        """
        turns = self._turns.setdefault(group_id, [])
        mine = _Turn(None if partitions is None else frozenset(partitions))
        before = [turn for turn in turns if turn.meets(mine)]
        turns.append(mine)
        try:
            async with asyncio.timeout(_WAIT_S):
                for turn in before:
                    await turn.done.wait()
            yield
        finally:
            mine.done.set()
            turns.remove(mine)
            if not turns:
                del self._turns[group_id]
