"""A partition with its local remote index, as it is kept in memory."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aquifer_core.errors import CorruptIndexError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata

from aquifer_manager.domain.lineages import first_difference
from aquifer_manager.domain.remote_index import RemoteIndex, RemoteIndexStore

__all__ = ["Coverage", "IndexedPartition"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What an index should cover: from the log start to the highest remote offset, in a lineage."""

    lineage: tuple[LeaderEpochEntry, ...]
    log_start_offset: int
    highest_offset: int

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch that wrote an offset."""
        entries = reversed(self.lineage)
        return next((each.epoch for each in entries if each.start_offset <= offset), None)


@dataclass(slots=True, kw_only=True)
class IndexedPartition:
    """An index and what is known of it.

    Attributes:
        wanted: what the index should cover, as was said last; None: nobody has said anything yet.
        reached: what the index is up with.
        copied: by start offset, segments copied here with their remote log indexes, not appended yet.
        nothing_until: below this offset nothing follows what is covered.
        doubted: an offset for which a reader did not find what the index may have said.
        is_tended: tasks say what is wanted, so readers need not.
        told_s: when somebody last said something or asked, on the clock's monotonic scale.
    """

    topic_id_partition: TopicIdPartition
    store: RemoteIndexStore
    wanted: Coverage | None = None
    reached: Coverage | None = None
    copied: dict[int, tuple[RemoteLogSegmentMetadata, bytes]] = field(default_factory=dict)
    nothing_until: int = 0
    doubted: int | None = None
    is_tended: bool = False
    told_s: float = 0.0
    failures: int = 0
    not_before_s: float = 0.0
    _index: RemoteIndex | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_at_hand(self) -> bool:
        """Whether the index is open, and nobody works on it."""
        return self._index is not None and not self._lock.locked()

    async def use(self, work: Callable[[RemoteIndex], T]) -> T:
        """Works on the index in a thread, one after the other.

        Raises:
            CorruptIndexError: it is damaged, and deleted; it must be built again.
            OSError: the disk failed; the next use opens it again.
        """
        async with self._lock:
            try:
                if self._index is None:
                    self._index = await _in_thread(lambda: self.store.open(self.topic_id_partition))
                index = self._index
                return await _in_thread(lambda: work(index))
            except asyncio.CancelledError as cancelled:
                if cancelled.__cause__ is not None:
                    self._index, self.reached = None, None
                raise
            except (CorruptIndexError, OSError) as error:
                self._index, self.reached = None, None
                if isinstance(error, CorruptIndexError):
                    await _in_thread(lambda: self.store.delete(self.topic_id_partition))
                raise

    async def begin(self, wanted: Coverage) -> int:
        """Takes the lineage over, and lets go of what lies below the log start; answers where what is covered ends."""
        if self.reached is None or self.reached.lineage != wanted.lineage:
            self.nothing_until = 0
            await self.use(lambda index: _take_lineage(index, wanted))
        return await self.use(lambda index: _clean(index, wanted.log_start_offset))


def _take_lineage(index: RemoteIndex, wanted: Coverage) -> None:
    """Cuts what belongs to another lineage off, and notes the new one."""
    if index.lineage:
        start = max(index.lineage[0].start_offset, wanted.log_start_offset)
        differs = first_difference(index.lineage, wanted.lineage, start, index.end_offset)
        if differs is not None:
            index.cut(differs)
    if index.lineage != wanted.lineage:
        index.set_lineage(wanted.lineage)


def _clean(index: RemoteIndex, log_start_offset: int) -> int:
    index.clean(log_start_offset)
    return index.end_offset


async def _in_thread(work: Callable[[], T]) -> T:
    """Runs in a thread to its end, also when cancelled: what it does to files must not meet what others do.

    A cancellation is raised from what the work failed with, which nobody hears of otherwise.
    """
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        await asyncio.wait([running])
        if running.cancelled():
            raise
        raise cancelled from running.exception()
