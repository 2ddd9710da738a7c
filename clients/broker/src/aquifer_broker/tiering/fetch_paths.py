"""Two ways to the records of a tiered fetch (`aquifer.remote.fetch.path`)."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from aquifer_core.errors import InternalError
from aquifer_core.ports import RemoteStorageManager

from aquifer_broker.tiering.manager_client import FetchPlan, ManagerClient, RemoteFetch

__all__ = ["DirectFetchPath", "FetchPath", "FetchedRecords", "ManagerFetchPath"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """A plan and the bytes that it led to, whole batches together."""

    plan: FetchPlan
    pieces: Sequence[bytes | memoryview]

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


class FetchPath(Protocol):
    """A way to read the cold part of a log."""

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        """Reads.

        Raises:
            OffsetOutOfRangeError, RemoteResourceNotFoundError, QuotaExceededError, UnavailableError, CorruptDataError.
        """
        ...


class ManagerFetchPath:
    """The manager plans, reads and streams: one connection, one more hop for the bytes."""

    def __init__(self, manager: ManagerClient) -> None:
        self._manager = manager

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        """See `FetchPath`."""
        plan: FetchPlan | None = None
        pieces: list[bytes | memoryview] = []
        async with aclosing(self._manager.fetch(request, deadline_s)) as answers:
            async for answer in answers:
                if isinstance(answer, FetchPlan):
                    plan = answer
                else:
                    pieces.append(answer)
        if plan is None:
            raise InternalError("the manager answered a fetch without a plan")
        return FetchedRecords(plan=plan, pieces=pieces)


class DirectFetchPath:
    """The manager plans, the broker reads from the RemoteStorageManager itself: one hop less for the bytes."""

    def __init__(self, manager: ManagerClient, storage: RemoteStorageManager) -> None:
        self._manager = manager
        self._storage = storage

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        """See `FetchPath`."""
        plan = await self._manager.plan_fetch(request, deadline_s)
        if plan.segment is None:
            return FetchedRecords(plan=plan, pieces=())
        records = self._storage.fetch_records(
            plan.segment,
            plan.fetch_offset,
            plan.max_bytes,
            min_one_batch=request.min_one_batch,
            next_segment=plan.next_segment,
        )
        return FetchedRecords(plan=plan, pieces=[piece async for piece in records])
