"""Answers tiered fetches (SR-19, SR-23, K-3.7)."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    QuotaExceededError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ports import Clock, RemoteStorageManager
from aquifer_core.segment import IsolationLevel, RemoteLogSegmentMetadata
from aquifer_core.segment_run import SegmentRun

from aquifer_manager.domain.aborted_transactions import AbortedTransactions
from aquifer_manager.domain.backoff import RETRIABLE, Backoff, retry_until
from aquifer_manager.domain.fetch_plan import FetchPlan, FetchRequest
from aquifer_manager.domain.fetch_reading import Piece, Reading
from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.quota import ByteQuota
from aquifer_manager.domain.reader_pool import ReaderPool
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from aquifer_manager.domain.segment_lookup import SegmentLookup
from aquifer_manager.domain.segment_runs import RunLookup
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.together import together

__all__ = ["FETCH_BACKOFF", "FetchService"]

FETCH_BACKOFF: Final = Backoff(initial_ms=100, max_ms=5000)

_READ_AHEAD_FROM: Final = 0.75


class FetchService:
    """Plans and reads. Failures of metadata or storage are retried until the caller's time is nearly up."""

    def __init__(
        self,
        storage: RemoteStorageManager,
        lookup: SegmentLookup,
        transactions: AbortedTransactions,
        *,
        runs: RunLookup,
        indexes: RemoteIndexes,
        pool: ReaderPool,
        quota: ByteQuota,
        clock: Clock,
        telemetry: Telemetry,
        backoff: Backoff = FETCH_BACKOFF,
    ) -> None:
        self._storage = storage
        self._lookup = lookup
        self._transactions = transactions
        self._runs = runs
        self._indexes = indexes
        self._pool = pool
        self._quota = quota
        self._clock = clock
        self._telemetry = telemetry
        self._backoff = backoff

    async def plan(self, request: FetchRequest, timeout_s: float) -> FetchPlan:
        """The decision of a fetch without its data; the caller reads from storage itself.

        Args:
            request: what is asked.
            timeout_s: time that the caller gave.

        Raises:
            OffsetOutOfRangeError: the offset is not remote.
            QuotaExceededError: the reader queue is full (READER_QUEUE_FULL) or the quota spent (FETCH_QUOTA).
            RemoteStorageUnavailableError: metadata or storage did not answer in time.
        """
        deadline_s = self._begin(request, timeout_s)
        async with self._counted(request), self._pool.slot():
            reservation = self._quota.try_reserve(request.max_bytes)
            used_bytes = 0
            try:
                plan = await retry_until(
                    lambda: self._plan(request),
                    backoff=self._backoff,
                    deadline_s=deadline_s,
                    clock=self._clock,
                )
                if plan.segment is not None:
                    used_bytes = min(request.max_bytes, plan.segment.segment_size_bytes)
                return plan
            finally:
                reservation.commit(used_bytes)

    async def fetch(
        self, request: FetchRequest, timeout_s: float
    ) -> AsyncGenerator[FetchPlan | Piece, None]:
        """First the plan, then the bytes of whole record batches, as storage gives them.

        A hole at a segment's end is skipped: then the plan names the next segment. Nothing follows a plan without segment.

        Args:
            request: what is asked.
            timeout_s: time that the caller gave.

        Raises:
            OffsetOutOfRangeError: the offset is not remote.
            RemoteResourceNotFoundError: the segment was deleted meanwhile (SEGMENT_NOT_FOUND).
            QuotaExceededError: the reader queue is full (READER_QUEUE_FULL) or the quota spent (FETCH_QUOTA).
            RemoteStorageUnavailableError: metadata or storage did not answer in time.
            CorruptSegmentError: stored bytes are damaged.
        """
        deadline_s = self._begin(request, timeout_s)
        reading = Reading(request)
        async with self._counted(request), self._pool.slot():
            reservation = self._quota.try_reserve(request.max_bytes)
            try:
                async with closing(self._read(reading, deadline_s)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                reservation.commit(reading.sent_bytes)
                self._telemetry.count(
                    "fetch.bytes", reading.sent_bytes, request.topic_id_partition.topic
                )

    def _begin(self, request: FetchRequest, timeout_s: float) -> float:
        if request.max_bytes < 1 or request.fetch_offset < 0:
            raise InvalidRequestError(
                f"cannot fetch {request.max_bytes} bytes from offset {request.fetch_offset}"
            )
        self._indexes.is_read(
            request.topic_id_partition, request.lineage, request.local_log_start_offset
        )
        return self._clock.monotonic_s() + timeout_s

    @asynccontextmanager
    async def _counted(self, request: FetchRequest) -> AsyncIterator[None]:
        topic = request.topic_id_partition.topic
        self._telemetry.count("fetch.requests", 1, topic)
        try:
            yield
        except (OffsetOutOfRangeError, QuotaExceededError):
            raise
        except Exception:
            self._telemetry.count("fetch.errors", 1, topic)
            raise

    async def _read(
        self, reading: Reading, deadline_s: float
    ) -> AsyncGenerator[FetchPlan | Piece, None]:
        """Reads; after a failure of storage or metadata again, skipping what was handed on."""
        failures = 0
        fresh = False
        while True:
            try:
                async with closing(self._attempt(reading, fresh=fresh)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except RemoteResourceNotFoundError:
                # Deleted between the look-up and the read: metadata may know another copy.
                if fresh or reading.plan is not None:
                    raise
                fresh = True
            except RETRIABLE as error:
                failures += 1
                await self._pause(error, failures, deadline_s)

    async def _attempt(
        self, reading: Reading, *, fresh: bool
    ) -> AsyncGenerator[FetchPlan | Piece, None]:
        request = reading.request
        plan = reading.plan or await self._located(
            request, request.leader_epoch, request.fetch_offset, fresh=fresh
        )
        while plan is not None and (segment := plan.segment) is not None:
            found = replace(plan, next_segment=await self._find_after(request, segment))
            async with closing(self._records(request, segment, found)) as pieces:
                if reading.plan is None:
                    # Neither needs the other: the search is over when the store has answered, mostly.
                    found, first = await together(
                        self._with_aborted(request, found), anext(pieces, None)
                    )
                else:
                    first = await anext(pieces, None)
                async with closing(reading.rest(found, first, pieces)) as rest:
                    async for piece in rest:
                        yield piece
            if reading.plan is not None:
                return
            plan = found
            if not await self._is_hole(request, plan):
                break
            plan = await self._following(request, segment)
        if plan is None:
            raise _not_remote(request, fresh=fresh)
        yield plan

    async def _records(
        self, request: FetchRequest, segment: RemoteLogSegmentMetadata, plan: FetchPlan
    ) -> AsyncGenerator[Piece, None]:
        records = self._storage.fetch_records(
            segment,
            plan.fetch_offset,
            plan.max_bytes,
            min_one_batch=request.min_one_batch,
            next_segment=plan.next_segment,
        )
        async with closing(records) as pieces:
            async for piece in pieces:
                yield piece

    async def _plan(self, request: FetchRequest) -> FetchPlan:
        fresh = request.fresh
        try:
            plan = await self._plan_once(request, fresh=fresh)
        except RemoteResourceNotFoundError:
            # An index of a segment deleted meanwhile: metadata may know another copy.
            fresh = True
            plan = await self._plan_once(request, fresh=True)
        if plan is None:
            raise _not_remote(request, fresh=fresh)
        return plan

    async def _plan_once(self, request: FetchRequest, *, fresh: bool) -> FetchPlan | None:
        # Under a quota every read has to come by.
        if request.reach_bytes > 0 and not self._quota.is_limited:
            run = await self._runs.find(request)
            if run is not None:
                return await self._plan_of_run(request, run)
        return await self._plan_at(request, request.leader_epoch, request.fetch_offset, fresh=fresh)

    async def _plan_of_run(self, request: FetchRequest, run: SegmentRun) -> FetchPlan | None:
        """A plan for more than one read, unless each read has to find its own aborted transactions."""
        if not run.segments:
            return None
        segment, *following = run.segments
        plan = FetchPlan(
            segment=segment,
            fetch_offset=request.fetch_offset,
            max_bytes=request.max_bytes,
            next_segment=following[0] if following and _nears_end(request, segment) else None,
        )
        committed = request.isolation_level is IsolationLevel.READ_COMMITTED
        if committed and run.may_have_transactions:
            return await self._with_aborted(request, plan)
        return replace(plan, reusable=True, following=tuple(following))

    async def _plan_at(
        self, request: FetchRequest, leader_epoch: int, offset: int, *, fresh: bool = False
    ) -> FetchPlan | None:
        """What to read from an offset on, with all that is known of it; None when no remote segment holds it."""
        plan = await self._located(request, leader_epoch, offset, fresh=fresh)
        if plan is None or plan.segment is None:
            return None
        # Neither needs the other.
        following, found = await together(
            self._find_after(request, plan.segment), self._with_aborted(request, plan)
        )
        return replace(found, next_segment=following)

    async def _located(
        self, request: FetchRequest, leader_epoch: int, offset: int, *, fresh: bool = False
    ) -> FetchPlan | None:
        """Where to read from an offset on; None when no remote segment holds it."""
        segment = await self._lookup.find(
            request.topic_id_partition,
            leader_epoch,
            offset,
            local_log_start_offset=request.local_log_start_offset,
            fresh=fresh,
        )
        if segment is None:
            return None
        return FetchPlan(segment=segment, fetch_offset=offset, max_bytes=request.max_bytes)

    async def _with_aborted(self, request: FetchRequest, plan: FetchPlan) -> FetchPlan:
        if plan.segment is None or request.isolation_level is not IsolationLevel.READ_COMMITTED:
            return plan
        aborted = await self._transactions.collect(
            plan.segment,
            request.epochs(),
            plan.fetch_offset,
            request.max_bytes,
            local_log_start_offset=request.local_log_start_offset,
        )
        return replace(plan, aborted=aborted)

    async def _following(
        self, request: FetchRequest, segment: RemoteLogSegmentMetadata
    ) -> FetchPlan:
        """What to read after a hole at the end of a segment."""
        offset = segment.end_offset + 1
        epoch = request.epochs().epoch_for_offset(offset)
        plan = None if epoch is None else await self._located(request, epoch, offset)
        return plan or FetchPlan(segment=None, fetch_offset=offset, max_bytes=request.max_bytes)

    async def _find_after(
        self, request: FetchRequest, segment: RemoteLogSegmentMetadata
    ) -> RemoteLogSegmentMetadata | None:
        """The segment to read ahead into, once a reader nears the end of the one before."""
        if not _nears_end(request, segment):
            return None
        offset = segment.end_offset + 1
        epoch = request.epochs().epoch_for_offset(offset)
        if epoch is None:
            return None
        try:
            return await self._lookup.hint(request.topic_id_partition, epoch, offset)
        except RETRIABLE:
            return None  # a read that can do without does not fail for it

    async def _is_hole(self, request: FetchRequest, plan: FetchPlan) -> bool:
        """Tells "no batch is left in the segment" from "the first batch is larger than allowed"."""
        if request.min_one_batch or plan.segment is None:
            return True
        probe = self._storage.fetch_records(plan.segment, plan.fetch_offset, 1, min_one_batch=True)
        async with closing(probe) as pieces:
            async for _ in pieces:
                return False
        return True

    async def _pause(self, error: AquiferError, failures: int, deadline_s: float) -> None:
        pause_s = max(self._backoff.delay_s(failures), (error.retry_after_ms or 0) / 1000)
        if self._clock.monotonic_s() + pause_s >= deadline_s:
            raise error
        await self._clock.sleep(pause_s)


def _nears_end(request: FetchRequest, segment: RemoteLogSegmentMetadata) -> bool:
    length = segment.end_offset - segment.start_offset
    return request.fetch_offset >= segment.start_offset + length * _READ_AHEAD_FROM


def _not_remote(request: FetchRequest, *, fresh: bool) -> AquiferError:
    where = (
        f"{request.topic_id_partition} offset {request.fetch_offset} epoch {request.leader_epoch}"
    )
    metadata = {"offset": str(request.fetch_offset)}
    if fresh:
        return RemoteResourceNotFoundError(
            f"{where}: the segment was deleted meanwhile", metadata=metadata
        )
    return OffsetOutOfRangeError(f"{where} is not in remote storage", metadata=metadata)
