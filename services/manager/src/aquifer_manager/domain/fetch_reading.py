"""How far a fetch has come that may have to begin again."""

from collections.abc import AsyncGenerator, AsyncIterator

from aquifer_manager.domain.fetch_plan import FetchPlan, FetchRequest

__all__ = ["Piece", "Reading"]

Piece = bytes | memoryview


class Reading:
    """How far one fetch has come: the plan once it was handed on, and the bytes after it."""

    def __init__(self, request: FetchRequest) -> None:
        self.request = request
        self.plan: FetchPlan | None = None
        self.sent_bytes = 0

    async def rest(
        self, plan: FetchPlan, first: Piece | None, pieces: AsyncIterator[Piece]
    ) -> AsyncGenerator[FetchPlan | Piece, None]:
        """What of a read from the start has not been handed on yet; the plan comes with the first bytes."""
        if first is None:
            return
        if self.plan is None:
            self.plan = plan
            yield plan
        skip = self.sent_bytes
        async for piece in _after(first, pieces):
            cut = min(skip, len(piece))
            skip -= cut
            if cut == len(piece):
                continue
            rest = memoryview(piece)[cut:] if cut else piece
            self.sent_bytes += len(rest)
            yield rest


async def _after(first: Piece, pieces: AsyncIterator[Piece]) -> AsyncGenerator[Piece, None]:
    yield first
    async for piece in pieces:
        yield piece
