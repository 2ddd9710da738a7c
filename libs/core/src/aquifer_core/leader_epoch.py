"""Leader epochs of a partition: the cache, and questions asked of its lineage (K-3.2, K-3.4, K-6.4)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "UNDEFINED_EPOCH",
    "UNDEFINED_EPOCH_OFFSET",
    "LeaderEpochCache",
    "LeaderEpochEntry",
    "bound_highest_remote_offset",
    "build_filtered_leader_epoch_map",
    "find_highest_remote_offset",
    "is_segment_within_leader_epochs",
]

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, order=True)
class LeaderEpochEntry:
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one log; epochs and start offsets both increase strictly.

    Mutable, without persistence: whoever owns it writes `entries` to the checkpoint when a changing
    method answers True. Source: `LeaderEpochFileCache`.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[LeaderEpochEntry] = ()) -> None:
        """Take over entries, each assigned in turn, so later ones displace what contradicts them."""
        self._entries: list[LeaderEpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    def __repr__(self) -> str:
        epochs = ", ".join(f"{entry.epoch}@{entry.start_offset}" for entry in self._entries)
        return f"LeaderEpochCache({epochs})"

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[LeaderEpochEntry, ...]:
        """All entries, ascending."""
        return tuple(self._entries)

    @property
    def earliest(self) -> LeaderEpochEntry | None:
        """The first entry."""
        return self._entries[0] if self._entries else None

    @property
    def latest(self) -> LeaderEpochEntry | None:
        """The last entry."""
        return self._entries[-1] if self._entries else None

    def as_map(self) -> dict[int, int]:
        """Return epoch -> start offset, ascending."""
        return {entry.epoch: entry.start_offset for entry in self._entries}

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that an epoch starts at an offset; idempotent.

        Entries with an equal or higher epoch or start offset are removed first. The latest epoch
        seen again at a higher offset changes nothing.

        Returns:
            Whether anything changed.

        Raises:
            ValueError: The epoch or the offset is negative.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"invalid leader epoch entry {epoch}@{start_offset}")
        latest = self.latest
        if latest and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        while (latest := self.latest) is not None and (
            latest.epoch >= epoch or latest.start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(LeaderEpochEntry(epoch, start_offset))
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that end before an offset, because the log starts there now; idempotent.

        The last entry at or below the offset stays, moved to the offset.

        Returns:
            Whether anything changed.
        """
        index = self._floor_index_of_offset(start_offset)
        if index < 0 or (index == 0 and self._entries[0].start_offset == start_offset):
            return False
        kept = LeaderEpochEntry(self._entries[index].epoch, start_offset)
        self._entries[: index + 1] = [kept]
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or after an offset, because the log ends there; idempotent.

        Returns:
            Whether anything changed.
        """
        index = self._floor_index_of_offset(end_offset - 1) + 1
        if index == len(self._entries):
            return False
        del self._entries[index:]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch at or below the one asked for, and where it ends, exclusive.

        Returns:
            (epoch, end offset): the log end offset for the latest epoch; the start of the next
            higher epoch otherwise; (-1, -1) when the epoch is above all or nothing is known.
        """
        if not self._entries or epoch < 0 or epoch > self._entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self._entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        floor_epoch = self._entries[higher - 1].epoch if higher else epoch
        return floor_epoch, self._entries[higher].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which an offset was written; none below the first entry."""
        index = self._floor_index_of_offset(offset)
        return self._entries[index].epoch if index >= 0 else None

    def entries_in_range(
        self, start_offset: int, end_offset_exclusive: int
    ) -> tuple[LeaderEpochEntry, ...]:
        """Return the entries that cover a range of offsets; the first one raised to its start.

        A start of -1 leaves the entries as they are, from the beginning on
        (`epochEntriesInRange`, K-3.2).
        """
        copy = LeaderEpochCache()
        copy._entries = list(self._entries)
        copy.truncate_from_start(start_offset)
        copy.truncate_from_end(end_offset_exclusive)
        return copy.entries

    def _floor_index_of_offset(self, offset: int) -> int:
        return bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1


def build_filtered_leader_epoch_map(leader_epochs: Mapping[int, int]) -> dict[int, int]:
    """Return epoch -> start offset without epochs that hold no record, ascending (K-3.4)."""
    filtered: dict[int, int] = {}
    previous: int | None = None
    for epoch in sorted(leader_epochs):
        if previous is not None and filtered[previous] == leader_epochs[epoch]:
            del filtered[previous]
        filtered[epoch] = leader_epochs[epoch]
        previous = epoch
    return filtered


def bound_highest_remote_offset(
    cache: LeaderEpochCache, epoch: int, highest_offset: int, log_end_offset: int
) -> int:
    """Lower an epoch's highest remote offset to what the local lineage still holds of it.

    After an unclean election the leader's epoch may end before what was copied in it.
    """
    _, end_offset = cache.end_offset_for(epoch, log_end_offset)
    if end_offset <= highest_offset:
        return max(end_offset - 1, -1)
    return highest_offset


def find_highest_remote_offset(
    cache: LeaderEpochCache,
    log_end_offset: int,
    highest_offset_for_epoch: Callable[[int], int | None] | Mapping[int, int],
) -> int:
    """Return the highest remote offset that belongs to the lineage; -1 when there is none (K-3.2).

    Args:
        cache: The leader's epochs.
        log_end_offset: End of the leader's log.
        highest_offset_for_epoch: Highest offset ever finished per epoch. A caller that must await
            it goes through the epochs downward and uses `bound_highest_remote_offset` itself.
    """
    find = highest_offset_for_epoch
    if isinstance(find, Mapping):
        find = find.get
    for entry in reversed(cache.entries):
        highest_offset = find(entry.epoch)
        if highest_offset is not None:
            return bound_highest_remote_offset(cache, entry.epoch, highest_offset, log_end_offset)
    return -1


def is_segment_within_leader_epochs(
    *,
    segment_leader_epochs: Mapping[int, int],
    end_offset: int,
    log_end_offset: int,
    lineage: Mapping[int, int],
) -> bool:
    """Tell whether a remote segment was written by the lineage of the current leader (K-3.4).

    Args:
        segment_leader_epochs: The segment's epoch -> first offset.
        end_offset: The segment's last offset, inclusive.
        log_end_offset: End of the leader's log.
        lineage: The leader's epochs as `build_filtered_leader_epoch_map` returns them. Its first
            entry may have been raised by deletions, so a segment may reach below that entry.
    """
    segment = build_filtered_leader_epoch_map(segment_leader_epochs)
    if not segment or not lineage or end_offset >= log_end_offset:
        return False
    first_epoch = next(iter(lineage))
    inside = [LeaderEpochEntry(*item) for item in segment.items() if item[0] >= first_epoch]
    if not inside or inside[0].epoch not in lineage:
        return False
    if inside[0].epoch != first_epoch and inside[0].start_offset < lineage[inside[0].epoch]:
        return False
    expected = [
        LeaderEpochEntry(epoch, start_offset)
        for epoch, start_offset in lineage.items()
        if epoch > inside[0].epoch
    ]
    # The rest of the segment's epochs must be the very next entries of the lineage, and the one
    # after them must start behind the segment.
    rest = inside[1:]
    if rest != expected[: len(rest)]:
        return False
    following = expected[len(rest) : len(rest) + 1]
    return not following or end_offset < following[0].start_offset
