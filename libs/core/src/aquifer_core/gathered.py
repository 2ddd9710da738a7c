"""Questions that arrive while others are being answered wait for a moment and are then asked together.

A question that meets no others is asked at once, so nobody waits for the sake of others. Under load one request answers many, and
what a request costs beside its content, much of it in the kernel, is shared. For that a leader lets the event loop take in what has
already reached the process, as long as more comes of it. Every answer is of a request that began after its question came.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

__all__ = ["GatheredQuestions"]

Q = TypeVar("Q")
A = TypeVar("A")

_LEAD: Final = object()

_MOST_PATIENCE: Final = 16
"""Turns of the event loop without a new question; gRPC takes a few for each call that it has received."""
_MOST_TURNS: Final = 128

_Turn: TypeAlias = "asyncio.Future[Any]"


class GatheredQuestions(Generic[Q, A]):
    """Asks in the tasks of those who want to know: one of each group leads, the others wait for it.

    There is no task of its own, so nothing to close. A leader that is cancelled takes nobody with it: those it led ask again.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        most_at_once: int,
        most_together: int,
        is_of_one: Callable[[Exception], bool],
    ) -> None:
        """Prepares.

        Args:
            ask: answers several questions in their order; idempotent.
            most_at_once: requests under way at the same time, at least 1.
            most_together: questions of a request, at least 1.
            is_of_one: whether an error may be one question's fault. Then the halves of the group are asked apart, down to the question
                that is refused; any other error is told to the whole group.
        """
        self._ask = ask
        self._most_at_once = most_at_once
        self._most_together = most_together
        self._is_of_one = is_of_one
        self._leaders = 0
        self._crowd = 0
        self._waiting: deque[tuple[Q, _Turn]] = deque()

    async def answer(self, question: Q) -> A:
        """Asks, alone or together with others; raises what asking raises."""
        if self._leaders < self._most_at_once:
            self._leaders += 1
        else:
            answered: Any = await self._turn(question)
            if answered is not _LEAD:
                return answered  # type: ignore[no-any-return]
        try:
            return await self._lead(question)
        finally:
            self._hand_over()

    async def _turn(self, question: Q) -> Any:
        """Waits for an answer, or for being the next to lead."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append((question, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            # Otherwise the turn is cancelled, and passed over where it stands.
            if not turn.cancelled() and turn.exception() is None and turn.result() is _LEAD:
                self._hand_over()
            raise

    async def _lead(self, question: Q) -> A:
        await self._let_others_come()
        group = self._group()
        self._crowd = max(len(group), self._crowd // 2)
        if not group:
            return (await self._ask([question]))[0]
        own: _Turn = asyncio.get_running_loop().create_future()
        try:
            await self._settle([(question, own), *group])
        except BaseException:
            self._waiting.extendleft(one for one in reversed(group) if not one[1].done())
            if own.done():
                own.exception()  # asyncio complains of errors that nobody looks at
            raise
        return own.result()  # type: ignore[no-any-return]

    async def _let_others_come(self) -> None:
        """Waits for questions that are on their way; the longer, the more came together lately: one turn when none did."""
        patience = most = 1 + min(self._crowd, _MOST_PATIENCE)
        for _ in range(_MOST_TURNS):
            waiting = len(self._waiting)
            await asyncio.sleep(0)
            if len(self._waiting) > waiting:
                patience = most
            else:
                patience -= 1
            if not patience or len(self._waiting) >= self._most_together - 1:
                return

    def _group(self) -> list[tuple[Q, _Turn]]:
        """Takes those who wait, the first first; without those who gave up."""
        group: list[tuple[Q, _Turn]] = []
        while self._waiting and len(group) < self._most_together - 1:
            one = self._waiting.popleft()
            if not one[1].done():
                group.append(one)
        return group

    async def _settle(self, group: Sequence[tuple[Q, _Turn]]) -> None:
        """Gives each of a group its answer or its error."""
        try:
            answers = await self._ask([question for question, _ in group])
        except Exception as error:
            if len(group) > 1 and self._is_of_one(error):
                middle = len(group) // 2
                await self._settle(group[:middle])
                await self._settle(group[middle:])
                return
            for _, turn in group:
                if not turn.done():
                    turn.set_exception(error)
        else:
            for (_, turn), answer in zip(group, answers, strict=True):
                if not turn.done():
                    turn.set_result(answer)

    def _hand_over(self) -> None:
        """Lets the first who waits lead; nobody leads in this place when none does."""
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(_LEAD)
                return
        self._leaders -= 1
