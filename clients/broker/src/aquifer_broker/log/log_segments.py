"""The segments of one log, ordered by base offset."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from aquifer_broker.log.log_segment import LogSegment

__all__ = ["LogSegments"]


class LogSegments:
    """A sorted sequence of segments; once a log is loaded it is never empty."""

    __slots__ = ("_bases", "_segments", "size_bytes")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        """Bytes of all `.log` files; the log keeps it current while it appends."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def oldest_first(self) -> Iterator[LogSegment]:
        """As iterating does, without a copy: for those who change nothing and do not wait meanwhile."""
        return iter(self._segments)

    @property
    def active(self) -> LogSegment:
        """The last segment, the only one that grows."""
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment with exactly this base offset."""
        index = bisect_left(self._bases, base_offset)
        if index < len(self._bases) and self._bases[index] == base_offset:
            return self._segments[index]
        return None

    def floor(self, offset: int) -> LogSegment | None:
        """The last segment that starts at or below an offset."""
        index = bisect_right(self._bases, offset) - 1
        return self._segments[index] if index >= 0 else None

    def following(self, segment: LogSegment) -> LogSegment | None:
        """The segment after one; None for the active one."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Segments from the one that may hold an offset on."""
        index = max(bisect_right(self._bases, offset) - 1, 0)
        return self._segments[index:]

    def add(self, segment: LogSegment) -> None:
        """Puts a segment in its place; one with the same base offset is replaced."""
        index = bisect_left(self._bases, segment.base_offset)
        if index < len(self._bases) and self._bases[index] == segment.base_offset:
            self.size_bytes -= self._segments[index].size_bytes
            self._segments[index] = segment
        else:
            self._segments.insert(index, segment)
            self._bases.insert(index, segment.base_offset)
        self.size_bytes += segment.size_bytes

    def remove(self, segment: LogSegment) -> None:
        """Takes a segment out; one that is not there is no matter."""
        index = bisect_left(self._bases, segment.base_offset)
        if index < len(self._segments) and self._segments[index] is segment:
            del self._segments[index], self._bases[index]
            self.size_bytes -= segment.size_bytes
