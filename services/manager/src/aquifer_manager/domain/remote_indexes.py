"""Keeps the local remote indexes of partitions up with what is remote (SR-17, SR-21, SR-33).

Tasks say how far a partition's index should reach; a loop of its own brings it there, from what copies answered with or from the
store, so that no task waits for it. It can be lost: it is built again from metadata and the store.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import structlog
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata
from aquifer_core.segment_listings import segments_from
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.backoff import Backoff
from aquifer_manager.domain.indexed_partition import Coverage, IndexedPartition
from aquifer_manager.domain.lineages import valid_until
from aquifer_manager.domain.remote_index import RemoteIndex, RemoteIndexStore
from aquifer_manager.domain.streams import closing

__all__ = ["RemoteIndexes"]

logger = structlog.get_logger(__name__)

_BACKOFF: Final = Backoff(initial_ms=1000, max_ms=60_000)
_SEGMENTS_A_TURN: Final = 32
_AT_ONCE: Final = 4
_KEPT_COPIES: Final = 16
_KEPT_BYTES: Final = 1 << 16
_ALL_KEPT_BYTES: Final = 32 << 20  # a disk that fails lets none of them go; the store has them, too
_TURN_S: Final = 30.0
_TIDY_INTERVAL_S: Final = 3600.0

T = TypeVar("T")


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
        self._partitions: dict[TopicIdPartition, IndexedPartition] = {}
        self._behind: dict[TopicIdPartition, None] = {}
        self._kept_bytes = 0
        self._tidied_s = clock.monotonic_s()

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
        self._want(partition, lineage, log_start_offset, highest_offset)

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
            self._want(partition, lineage, start, local_log_start_offset - 1)

    def copied(self, metadata: RemoteLogSegmentMetadata, index: bytes | None) -> None:
        """A segment is copied, committed, and its remote log index is known, or must be fetched."""
        tip = metadata.topic_id_partition
        partition = self._partition(tip)
        if index is not None and self._has_room(partition, len(index)):
            self._take(partition, metadata.start_offset)
            partition.copied[metadata.start_offset] = (metadata, index)
            self._kept_bytes += len(index)
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

    def doubt(self, tip: TopicIdPartition, offset: int) -> None:
        """What was said of an offset is gone: metadata is asked whether the index still knows better than to say so again."""
        partition = self._partitions.get(tip)
        if partition is not None and partition.wanted is not None:
            partition.doubted = min(offset, partition.doubted or offset)
            self._behind[tip] = None

    def is_at_hand(self, tip: TopicIdPartition) -> bool:
        """Whether `read` answers at once: the index is open, and nobody works on it."""
        partition = self._partitions.get(tip)
        return partition is not None and partition.is_at_hand

    def has(self, tip: TopicIdPartition) -> bool:
        """Whether `read` is worth a try."""
        return tip in self._partitions

    async def read(self, tip: TopicIdPartition, question: Callable[[RemoteIndex], T]) -> T | None:
        """Asks the index of a partition, be it what an earlier process left; None when it cannot be read."""
        partition = self._partition(tip)
        try:
            return await partition.use(question)
        except (CorruptIndexError, OSError) as error:
            if partition.wanted is not None:
                self._behind[tip] = None
            logger.warning("remote_index_not_read", partition=str(tip), error=str(error))
            return None

    def _partition(self, tip: TopicIdPartition) -> IndexedPartition:
        partition = self._partitions.get(tip)
        if partition is None:
            partition = IndexedPartition(topic_id_partition=tip, store=self._store)
            self._partitions[tip] = partition
        partition.told_s = self._clock.monotonic_s()
        return partition

    def _want(
        self,
        partition: IndexedPartition,
        lineage: Sequence[LeaderEpochEntry],
        log_start_offset: int,
        highest_offset: int,
    ) -> None:
        wanted = Coverage(
            lineage=tuple(lineage), log_start_offset=log_start_offset, highest_offset=highest_offset
        )
        if wanted != partition.wanted:
            partition.wanted = wanted
            self._behind[partition.topic_id_partition] = None

    async def _turn(self, tip: TopicIdPartition) -> None:
        partition = self._partitions[tip]
        wanted = partition.wanted
        try:
            async with asyncio.timeout(_TURN_S):
                is_reached = wanted is None or await self._bring_on(partition, wanted)
        except Exception as error:
            partition.failures += 1
            pause_s = _BACKOFF.delay_s(partition.failures)
            partition.not_before_s = self._clock.monotonic_s() + pause_s
            logger.warning(
                "remote_index_not_updated",
                topic=tip.topic,
                partition=tip.partition,
                error=repr(error),
                again_in_s=round(pause_s, 1),
            )
            return
        partition.failures = 0
        if is_reached and partition.wanted == wanted:
            partition.reached = wanted
            self._behind.pop(tip, None)

    async def _bring_on(self, partition: IndexedPartition, wanted: Coverage) -> bool:
        """A few segments more; answers whether that is all."""
        await self._settle_doubt(partition, wanted)
        end = await partition.begin(wanted)
        for _ in range(_SEGMENTS_A_TURN):
            offset = max(end + 1, wanted.log_start_offset, partition.nothing_until)
            if offset > wanted.highest_offset:
                for start_offset in list(partition.copied):
                    self._take(partition, start_offset)
                return True
            segment = await self._segment_at(partition, wanted, offset)
            if segment is None:
                partition.nothing_until = await self._next_start(
                    partition.topic_id_partition, wanted, offset
                )
                continue
            end = await self._append(partition, wanted, segment, offset)
        return False

    async def _settle_doubt(self, partition: IndexedPartition, wanted: Coverage) -> None:
        """Cuts off what metadata no longer has where it was said to be; what follows is built again."""
        offset = partition.doubted
        epoch = None if offset is None else wanted.epoch_at(offset)
        if offset is None or epoch is None:
            return
        tip = partition.topic_id_partition
        known = await self._metadata.remote_log_segment_metadata(tip, epoch, offset)
        covered = await partition.use(lambda index: index.find_by_offset(offset))
        if covered is not None and (
            known is None or known.segment_id != covered.metadata.segment_id
        ):
            await partition.use(lambda index: index.cut(offset))
            partition.nothing_until = 0
        if partition.doubted == offset:
            partition.doubted = None

    async def _segment_at(
        self, partition: IndexedPartition, wanted: Coverage, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        copied = partition.copied.get(offset)
        if copied is not None and valid_until(copied[0], wanted.lineage, offset) is not None:
            return copied[0]
        epoch = wanted.epoch_at(offset)
        if epoch is None:
            return None
        segment = await self._metadata.remote_log_segment_metadata(
            partition.topic_id_partition, epoch, offset
        )
        if segment is None or valid_until(segment, wanted.lineage, offset) is None:
            return None
        return segment

    async def _append(
        self,
        partition: IndexedPartition,
        wanted: Coverage,
        segment: RemoteLogSegmentMetadata,
        offset: int,
    ) -> int:
        """Appends a segment from an offset on; answers where what is covered ends."""
        copied = self._take(partition, segment.start_offset)
        if copied is not None and copied[0].segment_id == segment.segment_id:
            data = copied[1]
        else:
            data = await self._storage.fetch_index(segment, IndexType.REMOTE_LOG_INDEX)
        last_offset = valid_until(segment, wanted.lineage, offset)
        assert last_offset is not None
        table = await asyncio.to_thread(RemoteLogIndex.parse, data)
        await partition.use(lambda index: index.append(segment, table.entries, offset, last_offset))
        return last_offset

    async def _next_start(self, tip: TopicIdPartition, wanted: Coverage, offset: int) -> int:
        """Where the next segment of the lineage starts, behind an offset that none holds."""
        async with closing(segments_from(self._metadata, tip, offset + 1)) as listing:
            async for segment in listing:
                if (
                    segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                    and valid_until(segment, wanted.lineage, segment.start_offset) is not None
                ):
                    return segment.start_offset
        return wanted.highest_offset + 1

    def _has_room(self, partition: IndexedPartition, size_bytes: int) -> bool:
        return (
            size_bytes <= _KEPT_BYTES
            and len(partition.copied) < _KEPT_COPIES
            and self._kept_bytes + size_bytes <= _ALL_KEPT_BYTES
        )

    def _take(
        self, partition: IndexedPartition, start_offset: int
    ) -> tuple[RemoteLogSegmentMetadata, bytes] | None:
        """What is kept of a copy, which is kept no more."""
        copied = partition.copied.pop(start_offset, None)
        if copied is not None:
            self._kept_bytes -= len(copied[1])
        return copied

    async def _tidy(self) -> None:
        """Forgets partitions that nobody has asked for in a long time, and deletes their indexes."""
        now_s = self._clock.monotonic_s()
        if now_s - self._tidied_s < _TIDY_INTERVAL_S:
            return
        self._tidied_s = now_s
        for tip, partition in list(self._partitions.items()):
            partition.is_tended = False
            if now_s - partition.told_s > self._unused_for_s:
                for start_offset in list(partition.copied):
                    self._take(partition, start_offset)
                del self._partitions[tip]
                self._behind.pop(tip, None)
        used = list(self._partitions)
        deleted = await asyncio.to_thread(self._store.delete_unused, used, self._unused_for_s)
        if deleted:
            logger.info("unused_remote_indexes_deleted", count=deleted)
