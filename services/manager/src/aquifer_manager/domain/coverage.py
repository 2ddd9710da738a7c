"""Which records of some segments are held elsewhere, found out in one pass over a listing that is not held."""

from collections import deque
from collections.abc import Iterable

from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.ports import LogDescription

__all__ = ["Coverage", "Coverages"]

_Range = tuple[int, int]


class Coverage:
    """The offsets of a segment, by leader epoch, without those that others hold in the same epoch."""

    def __init__(self, segment: RemoteLogSegmentMetadata) -> None:
        self.segment = segment
        self._open = {epoch: [each] for epoch, each in segment.epoch_ranges().items()}

    def note(self, other: RemoteLogSegmentMetadata) -> None:
        """Another segment whose objects are there; only finished ones hold anything."""
        if (
            other.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            or other.segment_id == self.segment.segment_id
        ):
            return
        for epoch, taken in other.epoch_ranges().items():
            if self._open.get(epoch):
                self._open[epoch] = _without(self._open[epoch], taken)

    def left(self, log: LogDescription | None, log_start_offset: int) -> list[_Range]:
        """Offsets at or above the log start that nothing holds, with what is in a local log.

        Local records count only above what the broker believes to be remote: it may drop the others at any moment.
        """
        local = {} if log is None else _local_ranges(log)
        left: list[_Range] = []
        for epoch, ranges in self._open.items():
            open_ranges = [(max(first, log_start_offset), last) for first, last in ranges]
            if epoch in local:
                open_ranges = _without(open_ranges, local[epoch])
            left += [each for each in open_ranges if each[0] <= each[1]]
        return left


class Coverages:
    """Coverage of several segments by others that are told by ascending start offsets."""

    def __init__(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        self._of = {each.segment_id.id: Coverage(each) for each in segments}
        self._later = deque(sorted(self._of.values(), key=lambda each: each.segment.start_offset))
        self._reached: list[Coverage] = []
        self.any_noted = False

    def of(self, segment_id: KafkaUuid) -> Coverage:
        """The coverage of one of the segments."""
        return self._of[segment_id]

    def note(self, other: RemoteLogSegmentMetadata) -> None:
        """Another segment whose objects are there."""
        self.any_noted = True
        while self._later and self._later[0].segment.start_offset <= other.end_offset:
            self._reached.append(self._later.popleft())
        if not self._reached:
            return
        self._reached = [
            each for each in self._reached if each.segment.end_offset >= other.start_offset
        ]
        for coverage in self._reached:
            coverage.note(other)


def _local_ranges(log: LogDescription) -> dict[int, tuple[int, int]]:
    """Leader epoch -> offsets of it that the local log holds, and keeps until they are copied."""
    starts = [entry.start_offset for entry in log.leader_epochs] + [log.log_end_offset]
    kept_from = max(log.local_log_start_offset, log.highest_remote_offset + 1)
    return {
        entry.epoch: (max(entry.start_offset, kept_from), end - 1)
        for entry, end in zip(log.leader_epochs, starts[1:], strict=True)
    }


def _without(ranges: list[tuple[int, int]], taken: tuple[int, int]) -> list[tuple[int, int]]:
    first, last = taken
    if first > last:
        return ranges
    left = []
    for start, end in ranges:
        if start <= end:
            left += [
                part
                for part in ((start, min(end, first - 1)), (max(start, last + 1), end))
                if part[0] <= part[1]
            ]
    return left
