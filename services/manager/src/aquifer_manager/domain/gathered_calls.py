"""Questions that arrive while others are being answered wait, and are then asked together."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from aquifer_core.errors import AquiferError, ErrorReason, UnavailableError

from aquifer_manager.domain.backoff import RETRIABLE

__all__ = ["GatheredCalls"]

Q = TypeVar("Q")
A = TypeVar("A")


class GatheredCalls(Generic[Q, A]):
    """One call at a time, of all questions that came meanwhile. A question that meets no others goes out at once."""

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        name: str,
        most_together: int = 500,
    ) -> None:
        """Prepares.

        Args:
            ask: answers several questions in their order; idempotent.
            name: of the calls.
            most_together: questions of one call.
        """
        self._ask = ask
        self._name = name
        self._most_together = most_together
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def answer(self, question: Q) -> A:
        """The answer of a call that began after the question came; raises what asking raises."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._sender is None or self._sender.done():
            # In no run's context: the call serves many.
            self._sender = asyncio.create_task(
                self._send_all(), name=self._name, context=contextvars.Context()
            )
        return await answer

    async def close(self) -> None:
        """Ends all questions; idempotent."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send_all(self) -> None:
        batch: list[tuple[Q, asyncio.Future[A]]] = []
        try:
            await asyncio.sleep(0)  # whoever is about to ask as well
            while self._waiting:
                batch = self._waiting[: self._most_together]
                del self._waiting[: self._most_together]
                await self._send(batch)
        finally:
            given_up = UnavailableError(
                f"{self._name} was given up", reason=ErrorReason.PEER_UNAVAILABLE
            )
            _fail(batch + self._waiting, given_up)
            self._waiting.clear()

    async def _send(self, batch: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._ask([question for question, _ in batch])
        except RETRIABLE as error:
            _fail(batch, error)
        except Exception as error:
            if len(batch) == 1 or not isinstance(error, AquiferError):
                _fail(batch, error)
                return
            # One that is refused is no reason to fail the others.
            for one in batch:
                await self._send([one])
        else:
            for (_, waiter), answer in zip(batch, answers, strict=True):
                if not waiter.done():
                    waiter.set_result(answer)


def _fail(batch: Sequence[tuple[Q, asyncio.Future[A]]], error: Exception) -> None:
    for _, waiter in batch:
        if not waiter.done():
            waiter.set_exception(error)
