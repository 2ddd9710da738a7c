"""Where lineages part, and up to which offset a segment belongs to one (K-3.4)."""

from collections.abc import Sequence

from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata

__all__ = ["first_difference", "valid_until"]


def first_difference(
    one: Sequence[LeaderEpochEntry],
    other: Sequence[LeaderEpochEntry],
    first_offset: int,
    last_offset: int,
) -> int | None:
    """The first offset of a range, both ends inclusive, that two lineages wrote in different epochs; None when there is none."""
    starts = {each.start_offset for each in (*one, *other)}
    borders = sorted(start for start in starts if first_offset < start <= last_offset)
    epochs, others = LeaderEpochCache(one), LeaderEpochCache(other)
    for offset in (first_offset, *borders):
        if offset <= last_offset and epochs.epoch_for_offset(offset) != others.epoch_for_offset(
            offset
        ):
            return offset
    return None


def valid_until(
    segment: RemoteLogSegmentMetadata, lineage: Sequence[LeaderEpochEntry], offset: int
) -> int | None:
    """The last offset up to which a segment's records are the lineage's, from an offset on; None when that one is not.

    Where an epoch and an offset are the same the records are.
    """
    if not segment.start_offset <= offset <= segment.end_offset:
        return None
    own = [LeaderEpochEntry(*each) for each in segment.segment_leader_epochs.items()]
    differs = first_difference(own, lineage, offset, segment.end_offset)
    if differs is None:
        return segment.end_offset
    return differs - 1 if differs > offset else None
