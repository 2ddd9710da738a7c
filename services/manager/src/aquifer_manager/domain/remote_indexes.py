"""Keeps the local remote indexes of partitions up with what is remote (SR-17, SR-21, SR-33).

Tasks say how far a partition's index should reach; a loop of its own brings it there, from what copies answered with or from the
store, so that no task waits for it. It can be lost: it is built again from metadata and the store.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import structlog
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.lineages import first_difference, valid_until
from aquifer_manager.domain.remote_index import RemoteIndex, RemoteIndexStore
from aquifer_manager.domain.streams import closing

__all__ = ["RemoteIndexes"]

logger = structlog.get_logger(__name__)

_BACKOFF: Final = Backoff(initial_ms=1000, max_ms=300_000)
_SEGMENTS_A_TURN: Final = 32
_AT_ONCE: Final = 4
_KEPT_COPIES: Final = 16
_KEPT_BYTES: Final = 1 << 16
_TIDY_INTERVAL_S: Final = 3600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What an index should cover: from the log start to the highest remote offset, in a lineage."""

    lineage: tuple[LeaderEpochEntry, ...]
    log_start_offset: int
    highest_offset: int


@dataclass(slots=True)
class _Partition:
    """An index and what is known of it.

    Attributes:
        lock: held while its files are read or written.
        wanted: what tasks said last; None: none has said anything yet.
        reached: what the index is up with.
        copied: segments copied here with their remote log indexes, oldest first, not appended yet.
        nothing_until: below this offset nothing follows what is covered.
        is_tended: tasks say what is wanted, so readers need not.
        told_s: when somebody last said what is wanted.
    """

    wanted: _Wanted | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    index: RemoteIndex | None = None
    reached: _Wanted | None = None
    copied: dict[int, tuple[RemoteLogSegmentMetadata, bytes]] = field(default_factory=dict)
    nothing_until: int = 0
    is_tended: bool = False
    told_s: float = 0.0
    failures: int = 0
    not_before_s: float = 0.0


class RemoteIndexes:
    """The local remote indexes of the partitions that this manager works for."""

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        store: RemoteIndexStore,
        *,
        clock: Clock,
        unused_for_s: float,
    ) -> None:
        """Prepares.

        Args:
            metadata: knows which segments there are.
            storage: has their remote log indexes.
            store: on the local disk.
            clock: measures.
            unused_for_s: indexes of partitions that nobody has asked for so long go.
        """
        self._metadata = metadata
        self._storage = storage
        self._store = store
        self._clock = clock
        self._unused_for_s = unused_for_s
        self._partitions: dict[TopicIdPartition, _Partition] = {}
        self._behind: dict[TopicIdPartition, None] = {}
        self._tidied_s = float("-inf")

    @property
    def behind(self) -> int:
        """Partitions whose index does not reach as far as it should."""
        return len(self._behind)

    def should_reach(
        self,
        tip: TopicIdPartition,
        lineage: Sequence[LeaderEpochEntry],
        log_start_offset: int,
        highest_offset: int,
    ) -> None:
        """Says what a partition's index should cover by now. Cheap, and idempotent.

        Args:
            tip: partition.
            lineage: leader epochs of its log.
            log_start_offset: files wholly below it go.
            highest_offset: highest remote offset of the lineage; -1: nothing is remote.
        """
        if highest_offset < 0 and tip not in self._partitions:
            return
        partition = self._partition(tip)
        partition.is_tended = True
        self._want(tip, partition, lineage, log_start_offset, highest_offset)

    def is_read(
        self,
        tip: TopicIdPartition,
        lineage: Sequence[LeaderEpochEntry],
        local_log_start_offset: int | None,
    ) -> None:
        """A reader came; another manager may run the partition's tasks. Cheap, and idempotent."""
        if not lineage or local_log_start_offset is None:
            return
        partition = self._partition(tip)
        if not partition.is_tended:
            start = lineage[0].start_offset
            self._want(tip, partition, lineage, start, local_log_start_offset - 1)

    def copied(self, metadata: RemoteLogSegmentMetadata, index: bytes | None) -> None:
        """A segment is copied, committed, and its remote log index is known, or must be fetched."""
        tip = metadata.topic_id_partition
        partition = self._partition(tip)
        is_kept = len(partition.copied) < _KEPT_COPIES
        if index is not None and len(index) <= _KEPT_BYTES and is_kept:
            partition.copied[metadata.start_offset] = (metadata, index)
        if partition.wanted is not None:
            highest = max(partition.wanted.highest_offset, metadata.end_offset)
            partition.wanted = replace(partition.wanted, highest_offset=highest)
            self._behind[tip] = None

    async def update(self) -> None:
        """Brings indexes on; a partition that fails waits longer each time, and keeps no other from it."""
        await self._tidy()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def turn(tip: TopicIdPartition) -> None:
            async with limit:
                await self._turn(tip)

        now_s = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            for tip in list(self._behind):
                if self._partitions[tip].not_before_s <= now_s:
                    group.create_task(turn(tip), name=f"remote index {tip}")

    def has(self, tip: TopicIdPartition) -> bool:
        """Whether `read` is worth a try."""
        return tip in self._partitions

    async def read(self, tip: TopicIdPartition, question: Callable[[RemoteIndex], T]) -> T | None:
        """Asks the index of a partition, be it what an earlier process left; None when it cannot be read."""
        try:
            return await self._with_index(tip, self._partition(tip), question)
        except (CorruptIndexError, OSError) as error:
            logger.warning("remote_index_not_read", partition=str(tip), error=str(error))
            return None

    def _partition(self, tip: TopicIdPartition) -> _Partition:
        partition = self._partitions.get(tip)
        if partition is None:
            partition = self._partitions[tip] = _Partition()
        partition.told_s = self._clock.monotonic_s()
        return partition

    def _want(
        self,
        tip: TopicIdPartition,
        partition: _Partition,
        lineage: Sequence[LeaderEpochEntry],
        log_start_offset: int,
        highest_offset: int,
    ) -> None:
        wanted = _Wanted(
            lineage=tuple(lineage), log_start_offset=log_start_offset, highest_offset=highest_offset
        )
        if wanted != partition.wanted:
            partition.wanted = wanted
            self._behind[tip] = None

    async def _turn(self, tip: TopicIdPartition) -> None:
        partition = self._partitions[tip]
        wanted = partition.wanted
        try:
            is_reached = wanted is None or await self._bring_on(tip, partition, wanted)
        except Exception as error:
            partition.failures += 1
            pause_s = _BACKOFF.delay_s(partition.failures)
            partition.not_before_s = self._clock.monotonic_s() + pause_s
            logger.warning(
                "remote_index_not_updated",
                topic=tip.topic,
                partition=tip.partition,
                error=str(error),
                again_in_s=round(pause_s, 1),
            )
            return
        partition.failures = 0
        if is_reached and partition.wanted == wanted:
            partition.reached = wanted
            self._behind.pop(tip, None)

    async def _bring_on(
        self, tip: TopicIdPartition, partition: _Partition, wanted: _Wanted
    ) -> bool:
        """A few segments more; answers whether that is all."""
        last = partition.reached
        if last is None or last.lineage != wanted.lineage:
            partition.nothing_until = 0
            await self._with_index(tip, partition, lambda index: _take_lineage(index, wanted))
        end = await self._with_index(
            tip, partition, lambda index: _clean(index, wanted.log_start_offset)
        )
        for _ in range(_SEGMENTS_A_TURN):
            offset = max(end + 1, wanted.log_start_offset, partition.nothing_until)
            if offset > wanted.highest_offset:
                partition.copied.clear()
                return True
            segment = await self._segment_at(tip, partition, wanted, offset)
            if segment is None:
                partition.nothing_until = await self._next_start(tip, wanted, offset)
                continue
            end = await self._append(tip, partition, wanted, segment, offset)
        return False

    async def _segment_at(
        self, tip: TopicIdPartition, partition: _Partition, wanted: _Wanted, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        copied = partition.copied.get(offset)
        if copied is not None and valid_until(copied[0], wanted.lineage, offset) is not None:
            return copied[0]
        epoch = _epoch_at(wanted.lineage, offset)
        if epoch is None:
            return None
        segment = await self._metadata.remote_log_segment_metadata(tip, epoch, offset)
        if segment is None or valid_until(segment, wanted.lineage, offset) is None:
            return None
        return segment

    async def _append(
        self,
        tip: TopicIdPartition,
        partition: _Partition,
        wanted: _Wanted,
        segment: RemoteLogSegmentMetadata,
        offset: int,
    ) -> int:
        """Appends a segment from an offset on; answers where what is covered ends."""
        copied = partition.copied.pop(segment.start_offset, None)
        if copied is not None and copied[0].segment_id == segment.segment_id:
            data = copied[1]
        else:
            data = await self._storage.fetch_index(segment, IndexType.REMOTE_LOG_INDEX)
        last_offset = valid_until(segment, wanted.lineage, offset)
        assert last_offset is not None
        table = await asyncio.to_thread(RemoteLogIndex.parse, data)
        await self._with_index(
            tip, partition, lambda index: index.append(segment, table.entries, offset, last_offset)
        )
        return last_offset

    async def _next_start(self, tip: TopicIdPartition, wanted: _Wanted, offset: int) -> int:
        """Where the next segment of the lineage starts, behind an offset that none holds."""
        async with closing(self._metadata.list_remote_log_segments(tip)) as listing:
            starts = [
                segment.start_offset
                async for segment in listing
                if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                and segment.start_offset > offset
                and valid_until(segment, wanted.lineage, segment.start_offset) is not None
            ]
        return min(starts, default=wanted.highest_offset + 1)

    async def _with_index(
        self, tip: TopicIdPartition, partition: _Partition, work: Callable[[RemoteIndex], T]
    ) -> T:
        """Works on the index in a thread; what is damaged is deleted, and built again from the beginning."""
        async with partition.lock:
            try:
                if partition.index is None:
                    partition.index = await _in_thread(lambda: self._store.open(tip))
                index = partition.index
                return await _in_thread(lambda: work(index))
            except (CorruptIndexError, OSError) as error:
                partition.index, partition.reached = None, None
                if partition.wanted is not None:
                    self._behind[tip] = None
                if isinstance(error, CorruptIndexError):
                    await _in_thread(lambda: self._store.delete(tip))
                raise

    async def _tidy(self) -> None:
        """Forgets partitions that nobody has asked for in a long time, and deletes their indexes."""
        now_s = self._clock.monotonic_s()
        if now_s - self._tidied_s < _TIDY_INTERVAL_S:
            return
        self._tidied_s = now_s
        for tip, partition in list(self._partitions.items()):
            partition.is_tended = False
            if now_s - partition.told_s > self._unused_for_s:
                del self._partitions[tip]
                self._behind.pop(tip, None)
        used = list(self._partitions)
        deleted = await asyncio.to_thread(self._store.delete_unused, used, self._unused_for_s)
        if deleted:
            logger.info("unused_remote_indexes_deleted", count=deleted)


async def _in_thread(work: Callable[[], T]) -> T:
    """Runs in a thread to its end, also when cancelled: what it does to files must not meet what others do."""
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _take_lineage(index: RemoteIndex, wanted: _Wanted) -> None:
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


def _epoch_at(lineage: tuple[LeaderEpochEntry, ...], offset: int) -> int | None:
    return next((each.epoch for each in reversed(lineage) if each.start_offset <= offset), None)
