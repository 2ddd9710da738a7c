"""The purgatory of tiered reads: they outlive the fetch that asked, and serve the one that asks again (SR-19)."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from aquifer_core.errors import DeadlineExceededError, ErrorReason, QuotaExceededError
from aquifer_rpc import semconv
from opentelemetry import trace

from aquifer_broker.tiering.fetch_paths import FetchPath
from aquifer_broker.tiering.read_places import Place, ReadPlaces
from aquifer_broker.tiering.read_shares import ReadShares
from aquifer_broker.tiering.read_yield import ReadYield
from aquifer_broker.tiering.reader_pace import ReaderPace, ReaderPlace
from aquifer_broker.tiering.record_run import RecordRun, RunPart
from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch, following

__all__ = ["ReadRecords", "RemoteReads"]

logger = structlog.get_logger(__name__)

_TRACER: Final = trace.get_tracer("aquifer_broker")

_RETRY_AFTER_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """What a fetch gets: the plan of the read that it comes from, and its part of the batches."""

    plan: FetchPlan
    part: RunPart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brought:
    plan: FetchPlan
    run: RecordRun
    took_s: float


@dataclass(slots=True, eq=False)
class _Read:
    request: RemoteFetch
    reader: object | None
    task: asyncio.Task[_Brought]
    reserved_bytes: int
    place: Place
    waiting: int = field(default=0)

    def serves(self, request: RemoteFetch) -> bool:
        """Whether what this brings, or has brought, begins with what is asked for."""
        mine = self.request
        return (
            mine.topic_id_partition == request.topic_id_partition
            and mine.isolation == request.isolation
            and mine.local_log_start_offset == request.local_log_start_offset
            and mine.lineage == request.lineage
            and (mine.min_one_batch or not request.min_one_batch)
            and self._covers(request.fetch_offset)
        )

    def _covers(self, fetch_offset: int) -> bool:
        start = self.request.fetch_offset
        if not self.task.done():
            return fetch_offset == start
        if self.task.cancelled() or self.task.exception() is not None:
            # About to be forgotten: its failure is nobody's who comes now.
            return False
        return fetch_offset == start or start < fetch_offset < self.task.result().run.end_offset


class RemoteReads:
    """Reads under way, reads done whose asker had gone, and what was read ahead.

    A consumer whose fetch expired asks for the same offset again; it then joins the read under way, or gets what that had
    brought. So a store slower than `remote.fetch.max.wait.ms` delays consumers and does not starve them.

    A consumer that reads on is read ahead of: one large read costs much less than the many small ones that its fetches ask for, and the
    next one is begun while it takes what the last one brought. Bytes that reads may bring or have brought come from one budget, of which
    reading ahead takes at most half; beyond it, and beyond `max_reads`, new reads are refused, and of a reader who has its share (see
    `ReadShares`) already before. Beside hot traffic there may be fewer places than reads: a read then waits for its own.
    """

    def __init__(
        self,
        path: FetchPath,
        *,
        max_reads: int,
        budget_bytes: int,
        deadline_s: float,
        read_ahead_bytes: int = 0,
        read_yield: ReadYield | None = None,
    ) -> None:
        self._path = path
        self._yield = read_yield
        self._places = ReadPlaces() if read_yield is None else read_yield.places
        self._shares = ReadShares(max_reads=max_reads, budget_bytes=budget_bytes)
        self._deadline_s = deadline_s
        self._read_ahead_bytes = read_ahead_bytes
        self._pace = ReaderPace(read_ahead_bytes)
        # In the order of being begun or done; a partition has few.
        self._reads: OrderedDict[_Read, None] = OrderedDict()
        self._closed = False

    @property
    def running(self) -> int:
        """Reads not done yet."""
        return sum(not read.task.done() for read in self._reads)

    async def read(self, request: RemoteFetch, reader: object | None = None) -> ReadRecords:
        """Reads for a reader, or joins a read that serves as well. Cancelling the caller does not cancel the read.

        Raises:
            QuotaExceededError: (READER_QUEUE_FULL) too many reads or bytes; also what the read raises.
        """
        read = self._serving(request) or self._start_demanded(request, reader)
        if not read.place.held and not read.task.done():
            self._give_way_to(read)
        read.waiting += 1
        try:
            brought = await asyncio.shield(read.task)
        except BaseException:
            read.waiting -= 1
            if read.task.done():
                self._forget(read)
            raise
        read.waiting -= 1
        part = brought.run.part(
            request.fetch_offset, request.max_bytes, min_one_batch=request.min_one_batch
        )
        read.place.taken_from()
        if not read.waiting and (not part.size_bytes or part.end_offset >= brought.run.end_offset):
            self._forget(read)
        if part.size_bytes:
            self._go_on(request, reader, part, brought)
        return ReadRecords(plan=brought.plan, part=part)

    async def close(self) -> None:
        """Cancels every read and waits for them."""
        self._closed = True
        tasks = [read.task for read in self._reads]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for read in tuple(self._reads):
            self._forget(read)

    def _serving(self, request: RemoteFetch) -> _Read | None:
        return next((read for read in self._reads if read.serves(request)), None)

    def _start_demanded(self, request: RemoteFetch, reader: object | None) -> _Read:
        """Begins a read that somebody waits for, of as much as its reader is worth while there is plenty of room."""
        window = self._pace.window_bytes(_place(request, request.fetch_offset))
        if window > request.max_bytes and self._has_plenty(reader, window):
            return self._start(replace(request, max_bytes=window), reader)
        self._make_room(reader, request.max_bytes)
        return self._start(request, reader)

    def _start(self, request: RemoteFetch, reader: object | None) -> _Read:
        request = self._with_the_rest(request, reader)
        place = self._places.place(reader)
        task = asyncio.create_task(
            self._fetch_in_turn(request, place), name=f"remote read {request.topic_id_partition}"
        )
        read = _Read(request, reader, task, request.most_bytes, place)
        self._reads[read] = None
        self._shares.take(reader, read.reserved_bytes)
        task.add_done_callback(lambda _: self._done(read))
        return read

    def _with_the_rest(self, request: RemoteFetch, reader: object | None) -> RemoteFetch:
        rest_bytes = min(2 * request.max_bytes, self._read_ahead_bytes)
        if (
            rest_bytes <= request.max_bytes
            or self._pace.is_slow(_place(request, request.fetch_offset))
            or not self._has_plenty(reader, rest_bytes)
        ):
            return request
        return replace(request, rest_bytes=rest_bytes)

    def _give_way_to(self, wanted: _Read) -> None:
        """A reader waits for this one: it does not come for what it was brought already before it has this, too."""
        for read in self._reads:
            if read.reader is wanted.reader and read.task.done():
                read.place.give_back()

    async def _fetch_in_turn(self, request: RemoteFetch, place: Place) -> _Brought:
        await place.take()
        try:
            brought = await self._fetch(request)
        except BaseException:
            place.give_back()
            raise
        if self._yield is not None:
            self._yield.brought(brought.run.size_bytes)
        place.taken_from()
        return brought

    async def _fetch(self, request: RemoteFetch) -> _Brought:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with _TRACER.start_as_current_span("remote read", attributes=_attributes(request)) as span:
            try:
                async with asyncio.timeout(self._deadline_s):
                    fetched = await self._path.fetch(request, self._deadline_s)
            except TimeoutError as error:
                raise DeadlineExceededError(
                    f"remote read of {request.topic_id_partition} at {request.fetch_offset} took over {self._deadline_s:g} s"
                ) from error
            run = RecordRun(request.fetch_offset, fetched.pieces)
            span.set_attribute(semconv.BYTES.key, run.size_bytes)
        return _Brought(plan=fetched.plan, run=run, took_s=loop.time() - began_s)

    def _go_on(
        self, request: RemoteFetch, reader: object | None, part: RunPart, brought: _Brought
    ) -> None:
        """Notes where a reader will ask next, and reads ahead when it has taken half of what there is."""
        place = _place(request, part.end_offset)
        before = _place(request, request.fetch_offset)
        self._pace.went_on(before, place, part.size_bytes, brought.took_s)
        window = self._pace.window_bytes(place)
        ahead = following(request, brought.run.end_offset)
        if not window or ahead is None:
            return
        left = brought.run.part(part.end_offset, window, min_one_batch=False).size_bytes
        if 2 * left > window or not self._has_plenty(reader, window):
            return
        if self._serving(ahead) is None:
            self._start(replace(ahead, max_bytes=window, min_one_batch=True), reader)

    def _done(self, read: _Read) -> None:
        """Settles the budget; a failure that nobody waited for is logged and forgotten."""
        if self._closed or read not in self._reads:
            return
        error = None if read.task.cancelled() else read.task.exception()
        if read.task.cancelled() or error is not None:
            self._pace.failed(_place(read.request, read.request.fetch_offset))
            if not read.waiting:
                logger.warning(
                    "abandoned_remote_read_failed",
                    partition=str(read.request.topic_id_partition),
                    fetch_offset=read.request.fetch_offset,
                    error=str(error),
                )
            self._forget(read)
            return
        size_bytes = read.task.result().run.size_bytes
        self._shares.resize(read.reader, size_bytes - read.reserved_bytes)
        read.reserved_bytes = size_bytes
        self._reads.move_to_end(read)

    def _make_room(self, reader: object | None, wanted_bytes: int) -> None:
        """Drops kept results until a read of this size fits: the oldest of the reader first, then the oldest.

        Raises:
            QuotaExceededError: reads under way leave no room, or none for this reader.
        """
        kept = [read for read in self._reads if read.task.done() and not read.waiting]
        shares = self._shares
        for mine in [read for read in kept if read.reader is reader]:
            if not shares.is_full(wanted_bytes) and not shares.has_its_share(reader):
                return
            self._forget(mine)
        for other in [read for read in kept if read.reader is not reader]:
            if not shares.is_full(wanted_bytes) or shares.has_its_share(reader):
                break
            self._forget(other)
        if shares.is_full(wanted_bytes) or shares.has_its_share(reader) or self._closed:
            raise QuotaExceededError(
                f"{shares.reads} remote reads with {shares.reserved_bytes} bytes are under way",
                reason=ErrorReason.READER_QUEUE_FULL,
                retry_after_ms=_RETRY_AFTER_MS,
            )

    def _has_plenty(self, reader: object | None, wanted_bytes: int) -> bool:
        """Whether reading ahead leaves enough to those who wait."""
        return not self._closed and self._shares.has_plenty(reader, wanted_bytes)

    def _forget(self, read: _Read) -> None:
        if read in self._reads:
            del self._reads[read]
            read.place.give_back()
            self._shares.give_back(read.reader, read.reserved_bytes)


def _attributes(request: RemoteFetch) -> dict[str, str | int]:
    return {
        semconv.TOPIC.key: request.topic_id_partition.topic,
        semconv.PARTITION.key: request.topic_id_partition.partition,
        semconv.FETCH_OFFSET.key: request.fetch_offset,
    }


def _place(request: RemoteFetch, offset: int) -> ReaderPlace:
    return ReaderPlace(request.topic_id_partition, request.isolation, offset)
