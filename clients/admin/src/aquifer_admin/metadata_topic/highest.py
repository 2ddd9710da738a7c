"""Segments that are gone and were the last of their leader epochs: the highest offset of an epoch outlives them (K-2)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aquifer_admin.metadata_topic.moving import DELETING, SegmentKey
from aquifer_admin.metadata_topic.records import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """How far copies of a partition reached in a leader epoch: the segment that holds the highest offset, and that offset."""

    key: SegmentKey
    segment: Segment
    leader_epoch: int
    highest_offset: int


def peaks_of_gone(
    segments: Mapping[SegmentKey, Segment], finished: Collection[SegmentKey]
) -> list[Peak]:
    """The peaks of epochs that nothing shows any more but a segment that is, or is being, deleted.

    Args:
        segments: last states, deleted ones included.
        finished: those whose copy was finished once.
    """
    highest: dict[tuple[str, int, int], Peak] = {}
    for key in finished:
        for peak in _peaks(key, segments[key]):
            where = (*key[:2], peak.leader_epoch)
            if where not in highest or _rank(highest[where]) < _rank(peak):
                highest[where] = peak
    return [each for each in highest.values() if each.segment.state >= DELETING]


def _rank(peak: Peak) -> tuple[int, bool]:
    """Of two that reach as far, the one that stays is enough."""
    return peak.highest_offset, peak.segment.state < DELETING


def _peaks(key: SegmentKey, segment: Segment) -> list[Peak]:
    """One for each epoch of a segment; an epoch ends where the next one begins."""
    epochs = sorted(segment.segment_leader_epochs.items())
    ends = [*(offset - 1 for _, offset in epochs[1:]), segment.end_offset]
    return [
        Peak(key=key, segment=segment, leader_epoch=epoch, highest_offset=end)
        for (epoch, _), end in zip(epochs, ends, strict=True)
    ]
