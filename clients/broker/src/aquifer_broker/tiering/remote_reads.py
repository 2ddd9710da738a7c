"""The purgatory of tiered reads: they outlive the fetch that asked, and serve the one that asks again (SR-19)."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import structlog
from aquifer_core.errors import DeadlineExceededError, ErrorReason, QuotaExceededError

from aquifer_broker.tiering.fetch_paths import FetchedRecords, FetchPath
from aquifer_broker.tiering.manager_client import RemoteFetch

__all__ = ["RemoteReads"]

logger = structlog.get_logger(__name__)

_RETRY_AFTER_MS: Final = 100


@dataclass(slots=True)
class _Read:
    task: asyncio.Task[FetchedRecords]
    reserved_bytes: int
    waiting: int = field(default=0)


class RemoteReads:
    """Reads under way and reads done whose asker had gone.

    A consumer whose fetch expired asks for the same offset again; it then joins the read under way, or gets what that had
    brought. So a store slower than `remote.fetch.max.wait.ms` delays consumers and does not starve them. Bytes that reads may
    bring or have brought come from one budget; beyond it, and beyond `max_reads`, new reads are refused.
    """

    def __init__(
        self, path: FetchPath, *, max_reads: int, budget_bytes: int, deadline_s: float
    ) -> None:
        self._path = path
        self._max_reads = max_reads
        self._budget_bytes = budget_bytes
        self._deadline_s = deadline_s
        self._reads: OrderedDict[RemoteFetch, _Read] = OrderedDict()
        self._reserved_bytes = 0
        self._closed = False

    @property
    def running(self) -> int:
        """Reads not done yet."""
        return sum(not read.task.done() for read in self._reads.values())

    async def read(self, request: RemoteFetch) -> FetchedRecords:
        """Reads, or joins an equal read. Cancelling the caller does not cancel the read.

        Raises:
            QuotaExceededError: (READER_QUEUE_FULL) too many reads or bytes; also what the read raises.
        """
        read = self._reads.get(request)
        if read is None:
            read = self._start(request)
        read.waiting += 1
        try:
            records = await asyncio.shield(read.task)
        except BaseException:
            read.waiting -= 1
            if read.task.done():
                self._forget(request, read)
            raise
        read.waiting -= 1
        if not read.waiting:
            self._forget(request, read)
        return records

    async def close(self) -> None:
        """Cancels every read and waits for them."""
        self._closed = True
        tasks = [read.task for read in self._reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reads.clear()
        self._reserved_bytes = 0

    def _start(self, request: RemoteFetch) -> _Read:
        self._make_room(request.max_bytes)
        task = asyncio.create_task(
            self._fetch(request), name=f"remote read {request.topic_id_partition}"
        )
        read = _Read(task, request.max_bytes)
        self._reads[request] = read
        self._reserved_bytes += read.reserved_bytes
        task.add_done_callback(lambda _: self._done(request, read))
        return read

    async def _fetch(self, request: RemoteFetch) -> FetchedRecords:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._path.fetch(request, self._deadline_s)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"remote read of {request.topic_id_partition} at {request.fetch_offset} took over {self._deadline_s:g} s"
            ) from error

    def _done(self, request: RemoteFetch, read: _Read) -> None:
        """Settles the budget; a failure that nobody waited for is logged and forgotten."""
        if self._closed or self._reads.get(request) is not read:
            return
        error = None if read.task.cancelled() else read.task.exception()
        if read.task.cancelled() or error is not None:
            if not read.waiting:
                logger.warning(
                    "abandoned_remote_read_failed",
                    partition=str(request.topic_id_partition),
                    fetch_offset=request.fetch_offset,
                    error=str(error),
                )
            self._forget(request, read)
            return
        size_bytes = read.task.result().size_bytes
        self._reserved_bytes += size_bytes - read.reserved_bytes
        read.reserved_bytes = size_bytes
        self._reads.move_to_end(request)

    def _make_room(self, wanted_bytes: int) -> None:
        """Drops kept results, oldest first, until a read of this size fits.

        Raises:
            QuotaExceededError: reads under way leave no room.
        """
        kept = [each for each, read in self._reads.items() if read.task.done() and not read.waiting]
        while kept and self._is_full(wanted_bytes):
            oldest = kept.pop(0)
            self._forget(oldest, self._reads[oldest])
        if self._is_full(wanted_bytes) or self._closed:
            raise QuotaExceededError(
                f"{len(self._reads)} remote reads with {self._reserved_bytes} bytes are under way",
                reason=ErrorReason.READER_QUEUE_FULL,
                retry_after_ms=_RETRY_AFTER_MS,
            )

    def _is_full(self, wanted_bytes: int) -> bool:
        if not self._reads:
            return False
        return (
            len(self._reads) >= self._max_reads
            or self._reserved_bytes + wanted_bytes > self._budget_bytes
        )

    def _forget(self, request: RemoteFetch, read: _Read) -> None:
        if self._reads.get(request) is read:
            del self._reads[request]
            self._reserved_bytes -= read.reserved_bytes
