"""Two ways to the records of a tiered fetch (`aquifer.remote.fetch.path`)."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from aquifer_core.errors import InternalError, RemoteResourceNotFoundError
from aquifer_core.ports import RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.segment_run import bytes_left
from aquifer_rpc import semconv
from opentelemetry import metrics

from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.planned_runs import PlannedRuns
from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch, following

__all__ = ["DirectFetchPath", "FetchPath", "FetchedRecords", "ManagerFetchPath"]

_FETCHED: Final = metrics.get_meter("aquifer_broker").create_counter(
    semconv.FETCH_BYTES.name,
    unit=semconv.FETCH_BYTES.unit,
    description=semconv.FETCH_BYTES.doc,
)
_BY_EARLIER_PLAN: Final = metrics.get_meter("aquifer_broker").create_counter(
    semconv.FETCH_REQUESTS.name,
    unit=semconv.FETCH_REQUESTS.unit,
    description=semconv.FETCH_REQUESTS.doc,
)


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
        self._runs = PlannedRuns()

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        """See `FetchPath`. A hole at a segment's end is skipped: then the plan is the next segment's."""
        wanted = request
        while True:
            plan, pieces = await self._read(wanted, deadline_s)
            if plan.segment is None:
                return FetchedRecords(plan=plan, pieces=())
            if pieces or not await self._is_hole(plan.segment, plan, request):
                size_bytes = sum(map(len, pieces))
                _FETCHED.add(size_bytes, {semconv.TOPIC.key: request.topic_id_partition.topic})
                return FetchedRecords(plan=plan, pieces=pieces)
            behind = following(request, plan.segment.end_offset + 1)
            if behind is None:
                return FetchedRecords(plan=replace(plan, segment=None), pieces=())
            wanted = behind

    async def _read(
        self, request: RemoteFetch, deadline_s: float
    ) -> tuple[FetchPlan, list[bytes | memoryview]]:
        plan = self._runs.plan(request)
        if plan is None:
            plan = await self._planned(request, deadline_s)
        else:  # the manager counts those it plans
            _BY_EARLIER_PLAN.add(1, {semconv.TOPIC.key: request.topic_id_partition.topic})
        if plan.segment is None:
            return plan, []
        try:
            return await self._read_by(plan, plan.segment, request)
        except RemoteResourceNotFoundError:
            # Deleted since it was planned: metadata may know another copy.
            self._runs.forget(request.topic_id_partition)
            plan = await self._planned(request, deadline_s, fresh=True)
        if plan.segment is None:
            return plan, []
        return await self._read_by(plan, plan.segment, request)

    async def _read_by(
        self, plan: FetchPlan, segment: RemoteLogSegmentMetadata, request: RemoteFetch
    ) -> tuple[FetchPlan, list[bytes | memoryview]]:
        """A segment with little more than asked for is read to its end: the next read would cost as much as this one.

        Not by a plan for one read alone: the aborted transactions that it names, and the quota that it takes, are those of so many bytes.
        """
        if plan.reusable and bytes_left(segment, plan.fetch_offset) <= request.rest_bytes:
            plan = replace(plan, max_bytes=request.most_bytes)
        return plan, await self._records(segment, plan, request.min_one_batch)

    async def _planned(
        self, request: RemoteFetch, deadline_s: float, *, fresh: bool = False
    ) -> FetchPlan:
        until_s = self._runs.begin()
        plan = await self._manager.plan_fetch(
            request, deadline_s, reach_bytes=self._runs.reach_bytes(request), fresh=fresh
        )
        self._runs.keep(request, plan, until_s)
        return plan

    async def _records(
        self, segment: RemoteLogSegmentMetadata, plan: FetchPlan, min_one_batch: bool
    ) -> list[bytes | memoryview]:
        records = self._storage.fetch_records(
            segment,
            plan.fetch_offset,
            plan.max_bytes,
            min_one_batch=min_one_batch,
            next_segment=plan.next_segment,
        )
        return [piece async for piece in records]

    async def _is_hole(
        self, segment: RemoteLogSegmentMetadata, plan: FetchPlan, request: RemoteFetch
    ) -> bool:
        """Tells "no batch is left in the segment" from "the first batch is larger than allowed"."""
        if request.min_one_batch:
            return True
        return not await self._records(segment, replace(plan, max_bytes=1), True)
