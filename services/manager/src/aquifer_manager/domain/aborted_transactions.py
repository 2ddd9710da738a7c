"""Aborted transactions of a range of remote records (K-3.8)."""

from bisect import bisect_left
from dataclasses import dataclass

from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.transaction_index import (
    AbortedTransaction,
    collect_aborted,
    decode_entries,
)
from aquifer_core.leader_epoch import LeaderEpochCache
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata

from aquifer_manager.domain.ports import IndexSource
from aquifer_manager.domain.segment_finder import SegmentFinder

__all__ = ["AbortedTransactions", "upper_bound_offset"]


@dataclass(slots=True, kw_only=True)
class _Search:
    """A range of a segment; `upper_bound` None until an index is found for which it matters."""

    segment: RemoteLogSegmentMetadata
    lineage: LeaderEpochCache
    fetch_offset: int
    max_bytes: int
    local_log_start_offset: int | None
    upper_bound: int | None = None


class AbortedTransactions:
    """Collects what a READ_COMMITTED answer must carry from the transaction indexes of remote segments.

    A transaction's entry lies in the segment with its abort marker, which may be far behind the range read. The search goes from
    segment to segment until an entry's last stable offset reaches the range's end, asking metadata only for segments that may
    have an index. What the local log adds is the broker's to look up.
    """

    def __init__(self, finder: SegmentFinder, indexes: IndexSource) -> None:
        self._finder = finder
        self._indexes = indexes

    async def collect(
        self,
        segment: RemoteLogSegmentMetadata,
        lineage: LeaderEpochCache,
        fetch_offset: int,
        max_bytes: int,
        *,
        local_log_start_offset: int | None = None,
    ) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions of at most `max_bytes` of a segment from an offset on, without repetitions.

        A transaction behind the range may be among them, which consumers ignore; none of the range is missing. No index is read when no
        segment from this one on has a transaction index.
        """
        search = _Search(
            segment=segment,
            lineage=lineage,
            fetch_offset=fetch_offset,
            max_bytes=max_bytes,
            local_log_start_offset=local_log_start_offset,
        )
        chosen: dict[AbortedTransaction, None] = {}
        current: RemoteLogSegmentMetadata | None = segment
        while current is not None:
            if not current.txn_index_empty:
                data = await self._indexes.index(current, IndexType.TRANSACTION)
                found, complete = collect_aborted(
                    decode_entries(data), fetch_offset, await self._upper_bound(search)
                )
                chosen.update(dict.fromkeys(found))
                if complete:
                    break
            current = await self._next_with_index(search, current.end_offset + 1)
        return tuple(sorted(chosen, key=lambda entry: (entry.first_offset, entry.producer_id)))

    async def _upper_bound(self, search: _Search) -> int:
        """An offset behind everything that the read may return."""
        if search.upper_bound is None:
            segment = search.segment
            index = OffsetIndex(
                await self._indexes.index(segment, IndexType.OFFSET), segment.start_offset
            )
            bound = upper_bound_offset(index, search.fetch_offset, search.max_bytes)
            search.upper_bound = segment.end_offset + 1 if bound is None else bound
        return search.upper_bound

    async def _next_with_index(
        self, search: _Search, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first segment at or after an offset, epoch by epoch, that may have a transaction index.

        The answers are not remembered. That there is none holds for what was remote when metadata was asked: segments that are
        copied later are covered by the broker's local log only as long as they are local, and how long that is nobody here knows.
        A reader with a remembered answer would miss the transactions of a segment that was copied and then deleted locally in
        between. That there is one would hold longer, but is the rare case. So the time it takes is hidden, not saved: see `FetchService`.
        """
        return await self._finder.next_with_transactions(
            search.segment.topic_id_partition,
            search.lineage.entries,
            offset,
            local_log_start_offset=search.local_log_start_offset,
        )


def upper_bound_offset(index: OffsetIndex, fetch_offset: int, max_bytes: int) -> int | None:
    """An offset behind everything that a read of `max_bytes` from an offset returns; None: the segment's end.

    The batch that holds the offset starts at or before the first entry at or after the offset. Reckoning from that entry
    covers a first batch larger than `max_bytes` as well: positions of entries are borders of batches.
    """
    slot = bisect_left(index, fetch_offset, key=lambda entry: entry.offset)
    if slot == len(index):
        return None
    return index.fetch_upper_bound_offset(index[slot].position, max_bytes)
