"""Finds the segment that holds an offset, without a metadata read for every fetch of a sequential reader."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.domain.segment_finder import SegmentFinder

__all__ = ["SegmentLookup"]

_KEPT_PER_EPOCH: Final = 4


@dataclass(frozen=True, slots=True)
class _Found:
    segment: RemoteLogSegmentMetadata
    first_offset: int
    last_offset: int
    until_s: float


class SegmentLookup:
    """Look-ups by (leader epoch, offset). Found segments are remembered for a short time, absent ones never, hints apart.

    A segment may be deleted while it is remembered: a reader that does not find its objects asks again with `fresh`.
    """

    def __init__(
        self,
        finder: SegmentFinder,
        *,
        clock: Clock,
        ttl_s: float = 2.0,
        max_entries: int = 10_000,
    ) -> None:
        self._finder = finder
        self._clock = clock
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._found: OrderedDict[tuple[TopicIdPartition, int], list[_Found]] = OrderedDict()
        self._absent_until_s: dict[tuple[TopicIdPartition, int, int], float] = {}

    async def find(
        self,
        tip: TopicIdPartition,
        leader_epoch: int,
        offset: int,
        *,
        local_log_start_offset: int | None = None,
        fresh: bool = False,
    ) -> RemoteLogSegmentMetadata | None:
        """The finished segment that holds the offset for the epoch; None when there is none now.

        Args:
            tip: partition.
            leader_epoch: of the offset in the caller's lineage.
            offset: to find.
            local_log_start_offset: see `SegmentFinder.at`.
            fresh: asks metadata even when the answer is remembered.
        """
        if not fresh and (known := self._remembered(tip, leader_epoch, offset)) is not None:
            return known
        segment = await self._finder.at(
            tip,
            leader_epoch,
            offset,
            local_log_start_offset=local_log_start_offset,
            only_metadata=fresh,
        )
        if segment is None:
            self._forget(tip, leader_epoch, offset)
            return None
        self._remember(tip, leader_epoch, segment)
        return segment

    async def hint(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """As `find`, but absence is remembered as well: for read-ahead, where a late answer does no harm."""
        key = (tip, leader_epoch, offset)
        if self._clock.monotonic_s() < self._absent_until_s.get(key, 0.0):
            return None
        found = await self.find(tip, leader_epoch, offset)
        if found is None:
            if len(self._absent_until_s) >= self._max_entries:
                self._absent_until_s.clear()
            self._absent_until_s[key] = self._clock.monotonic_s() + self._ttl_s
        return found

    def _remembered(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        now_s = self._clock.monotonic_s()
        for found in self._found.get((tip, leader_epoch), ()):
            if found.first_offset <= offset <= found.last_offset and now_s < found.until_s:
                return found.segment
        return None

    def _forget(self, tip: TopicIdPartition, leader_epoch: int, offset: int) -> None:
        kept = [
            found
            for found in self._found.get((tip, leader_epoch), ())
            if not found.first_offset <= offset <= found.last_offset
        ]
        if kept:
            self._found[tip, leader_epoch] = kept
        else:
            self._found.pop((tip, leader_epoch), None)

    def _remember(
        self, tip: TopicIdPartition, leader_epoch: int, segment: RemoteLogSegmentMetadata
    ) -> None:
        bounds = segment.epoch_ranges().get(leader_epoch)
        if bounds is None:
            return
        until_s = self._clock.monotonic_s() + self._ttl_s
        key = (tip, leader_epoch)
        # Readers of one partition at different places each keep theirs; overlapping older entries go.
        others = [
            found
            for found in self._found.get(key, ())
            if found.last_offset < bounds[0] or found.first_offset > bounds[1]
        ]
        self._found[key] = [_Found(segment, *bounds, until_s), *others][:_KEPT_PER_EPOCH]
        self._found.move_to_end(key)
        if len(self._found) > self._max_entries:
            self._found.popitem(last=False)
