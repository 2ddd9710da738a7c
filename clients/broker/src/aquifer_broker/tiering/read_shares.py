"""How many reads at once, and how many bytes of them, one reader may have while others want some, too."""

from collections.abc import Hashable
from typing import Final

__all__ = ["ReadShares"]

_ALPHA: Final = 4


class ReadShares:
    """Keeps part of what is free for those who have less.

    A reader may have up to four times what nobody has (dynamic thresholds, Choudhury and Hahne 1998): alone four fifths of all, two 44 %
    each, ten 10 % each. A reader who comes while another has its fill finds the last fifth free, and gets even with it as reads end.
    Whoever has nothing may have one read, as long as there is room at all.
    """

    def __init__(self, *, max_reads: int, budget_bytes: int) -> None:
        self._max_reads = max_reads
        self._budget_bytes = budget_bytes
        self._held: dict[Hashable, list[int]] = {}
        self.reads = 0
        self.reserved_bytes = 0

    def take(self, reader: Hashable, size_bytes: int) -> None:
        """A reader has one more read."""
        held = self._held.setdefault(reader, [0, 0])
        held[0] += 1
        self.reads += 1
        self.resize(reader, size_bytes)

    def resize(self, reader: Hashable, grown_bytes: int) -> None:
        """A read turned out to be so much larger than thought."""
        self._held[reader][1] += grown_bytes
        self.reserved_bytes += grown_bytes

    def give_back(self, reader: Hashable, size_bytes: int) -> None:
        """A reader has one read less."""
        held = self._held[reader]
        held[0] -= 1
        self.reads -= 1
        self.resize(reader, -size_bytes)
        if not held[0]:
            del self._held[reader]

    def is_full(self, size_bytes: int) -> bool:
        """Whether nobody may begin a read of this size; the only one may always."""
        return self.reads > 0 and (
            self.reads >= self._max_reads or self.reserved_bytes + size_bytes > self._budget_bytes
        )

    def has_its_share(self, reader: Hashable) -> bool:
        """Whether a reader must leave what is free to others."""
        reads, held_bytes = self._held.get(reader, (0, 0))
        return reads > 0 and (
            reads >= _ALPHA * (self._max_reads - self.reads)
            or held_bytes >= _ALPHA * (self._budget_bytes - self.reserved_bytes)
        )

    def has_plenty(self, reader: Hashable, size_bytes: int) -> bool:
        """Whether reading ahead leaves half of all to those who wait, and is within the reader's share."""
        return (
            2 * self.reads < self._max_reads
            and 2 * (self.reserved_bytes + size_bytes) <= self._budget_bytes
            and not self.has_its_share(reader)
        )
