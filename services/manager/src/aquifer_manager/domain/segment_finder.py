"""Which remote segments hold what readers ask for: metadata knows, and the local remote index may (SR-33).

What an index says stays true, however old it is: where a leader epoch and an offset are the same the records are, and a segment that was
deleted meanwhile is not in the store. Only what is *not* there it cannot tell beyond its end. So plans for readers that read on are made from
it where all that follows its end is local; everything else metadata is asked, and the index only while metadata does not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import Clock, RemoteLogMetadataManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.segment_run import MAX_RUN_SEGMENTS, SegmentRun, trimmed_run

from aquifer_manager.domain.backoff import RETRIABLE
from aquifer_manager.domain.fetch_plan import FetchRequest
from aquifer_manager.domain.lineages import first_difference, valid_until
from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.remote_index import CoveredSegment, RemoteIndex
from aquifer_manager.domain.remote_indexes import RemoteIndexes

__all__ = ["SegmentFinder"]

_PATIENCE_S: Final = 2.0
_ASK_AGAIN_S: Final = 1.0

T = TypeVar("T")


class _UnknownHereError(Exception):
    """The local index cannot tell."""


class SegmentFinder:
    """Answers readers. A partition that has a local index waits for metadata for a short time only."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        indexes: RemoteIndexes,
        *,
        clock: Clock,
        telemetry: Telemetry,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Prepares.

        Args:
            metadata: is asked first.
            indexes: answer when it does not.
            clock: measures.
            telemetry: counts what the indexes answer.
            patience_s: how long metadata may take where an index could answer.
        """
        self._metadata = metadata
        self._indexes = indexes
        self._clock = clock
        self._telemetry = telemetry
        self._patience_s = patience_s
        self._down_until_s = float("-inf")

    async def at(
        self,
        tip: TopicIdPartition,
        leader_epoch: int,
        offset: int,
        *,
        local_log_start_offset: int | None = None,
        only_metadata: bool = False,
    ) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds an offset for a leader epoch; None when there is none now.

        Args:
            tip: partition.
            leader_epoch: of the offset in the caller's lineage.
            offset: to find.
            local_log_start_offset: what lies at or after it need not be remote.
            only_metadata: what was known before is gone.
        """

        def ask() -> Awaitable[RemoteLogSegmentMetadata | None]:
            return self._metadata.remote_log_segment_metadata(tip, leader_epoch, offset)

        def look(index: RemoteIndex) -> RemoteLogSegmentMetadata | None:
            found = index.find_by_offset(offset)
            is_local = local_log_start_offset is not None and offset >= local_log_start_offset
            if found is None and is_local:
                return None
            lineage = (LeaderEpochEntry(leader_epoch, offset),)
            if found is None or valid_until(found.metadata, lineage, offset) is None:
                raise _UnknownHereError
            return found.metadata

        if only_metadata:
            self._indexes.doubt(tip, offset)
            return await ask()
        return await self._answer(tip, ask, look)

    async def run(self, request: FetchRequest) -> SegmentRun | None:
        """What a reader will come to, see `SegmentRuns`, without a question to metadata; None when it must be asked."""
        tip = request.topic_id_partition
        if request.fresh:
            self._indexes.doubt(tip, request.fetch_offset)
            return None
        if not self._indexes.is_at_hand(tip):
            return None
        try:
            return await self._indexes.read(tip, partial(_run, request))
        except _UnknownHereError:
            return None

    async def for_timestamp(
        self,
        tip: TopicIdPartition,
        lineage: dict[int, int],
        timestamp_ms: int,
        min_offset: int,
        *,
        local_log_start_offset: int,
    ) -> RemoteLogSegmentMetadata | None:
        """The first finished segment of a lineage with records at or after a timestamp and an offset; None when none is remote."""

        def ask() -> Awaitable[RemoteLogSegmentMetadata | None]:
            return self._metadata.find_segment_for_timestamp(tip, lineage, timestamp_ms, min_offset)

        def look(index: RemoteIndex) -> RemoteLogSegmentMetadata | None:
            entries = [LeaderEpochEntry(*each) for each in lineage.items()]
            _check(index, entries, min_offset)
            found = index.find_by_timestamp(timestamp_ms, min_offset)
            return _known(index, found, local_log_start_offset)

        return await self._answer(tip, ask, look)

    async def next_with_transactions(
        self,
        tip: TopicIdPartition,
        lineage: Sequence[LeaderEpochEntry],
        offset: int,
        *,
        local_log_start_offset: int | None,
    ) -> RemoteLogSegmentMetadata | None:
        """The first finished segment of a lineage at or after an offset that may have aborted transactions; None when none has."""

        def look(index: RemoteIndex) -> RemoteLogSegmentMetadata | None:
            _check(index, lineage, offset)
            return _known(index, index.next_with_transactions(offset), local_log_start_offset)

        return await self._answer(tip, lambda: self._with_transactions(tip, lineage, offset), look)

    async def hint(self, tip: TopicIdPartition, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Metadata's answer to what a reader can do without, where an index could answer the rest; None when it does not answer."""

        def look(index: RemoteIndex) -> None:
            if index.start_offset is None:
                raise _UnknownHereError

        return await self._answer(tip, ask, look)

    async def _with_transactions(
        self, tip: TopicIdPartition, lineage: Sequence[LeaderEpochEntry], offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Epoch by epoch, from that of the offset on."""
        ends = [each.start_offset for each in lineage[1:]]
        for number, entry in enumerate(lineage):
            if number < len(ends) and ends[number] <= offset:
                continue
            found = await self._metadata.next_segment_with_txn_index(
                tip, entry.epoch, max(offset, entry.start_offset)
            )
            if found is not None:
                return found
        return None

    async def _answer(
        self,
        tip: TopicIdPartition,
        ask: Callable[[], Awaitable[T]],
        look: Callable[[RemoteIndex], T],
    ) -> T:
        """Metadata's answer; the index's when metadata does not answer and the index can.

        Raises:
            UnavailableError, DeadlineExceededError: neither answers.
        """
        if not self._indexes.has(tip):
            return await ask()
        if self._clock.monotonic_s() < self._down_until_s:
            try:
                return await self._look(tip, look)
            except _UnknownHereError:
                return await ask()
        try:
            async with asyncio.timeout(self._patience_s):
                return await ask()
        except (TimeoutError, *RETRIABLE) as error:
            self._down_until_s = self._clock.monotonic_s() + _ASK_AGAIN_S
            try:
                return await self._look(tip, look)
            except _UnknownHereError:
                if isinstance(error, RETRIABLE):
                    raise error from None
        # It was only slow, and nobody else knows.
        return await ask()

    async def _look(self, tip: TopicIdPartition, look: Callable[[RemoteIndex], T]) -> T:
        answers = await self._indexes.read(tip, lambda index: [look(index)])
        if not answers:
            raise _UnknownHereError
        self._telemetry.count("index.answers", 1, tip.topic)
        return answers[0]


def _run(request: FetchRequest, index: RemoteIndex) -> SegmentRun:
    """The run of an index that knows all that is remote of the lineage, from the offset on."""
    offset, local_start = request.fetch_offset, request.local_log_start_offset
    _check(index, request.lineage, offset)
    if local_start is None or index.end_offset + 1 < local_start:
        raise _UnknownHereError
    chain: list[tuple[int, int, RemoteLogSegmentMetadata]] = []
    for covered in islice(index.segments_from(offset), MAX_RUN_SEGMENTS):
        bounds = covered.metadata.epoch_ranges().get(request.leader_epoch)
        if bounds is None or not covered.is_whole:
            break
        chain.append((*bounds, covered.metadata))
    if not chain or not chain[0][0] <= offset <= chain[0][1]:
        raise _UnknownHereError
    return SegmentRun(
        segments=tuple(trimmed_run(chain, offset, request.reach_bytes)),
        may_have_transactions=index.last_transactional_offset >= chain[0][2].start_offset,
    )


def _check(index: RemoteIndex, lineage: Sequence[LeaderEpochEntry], offset: int) -> None:
    """An index of another lineage, or one that begins behind an offset, does not know."""
    start = index.start_offset
    if start is None or start > offset:
        raise _UnknownHereError
    if first_difference(index.lineage, lineage, offset, index.end_offset) is not None:
        raise _UnknownHereError


def _known(
    index: RemoteIndex, found: CoveredSegment | None, local_log_start_offset: int | None
) -> RemoteLogSegmentMetadata | None:
    if found is not None and found.is_whole:
        return found.metadata
    if (
        found is None
        and local_log_start_offset is not None
        and index.end_offset + 1 >= local_log_start_offset
    ):
        return None
    raise _UnknownHereError
