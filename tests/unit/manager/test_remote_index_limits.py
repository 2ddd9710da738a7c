"""Local remote indexes of many partitions, of very long ones, and on a disk that fails."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.formats.remote_log_index import RemoteLogIndexEntry
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.adapters.remote_index import IndexDirectory, IndexStore
from aquifer_manager.domain.indexed_partition import IndexedPartition
from aquifer_manager.domain.remote_indexes import RemoteIndexes
from fixtures.manager_indexes import WEEK_MS, remote_indexes
from fixtures.manager_world import START_MS, SteppedClock, partition
from fixtures.polling import eventually

LINEAGE = (LeaderEpochEntry(0, 0),)


def segment(tip: TopicIdPartition, start: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(tip, KafkaUuid.random()),
        start_offset=start,
        end_offset=start + 99,
        broker_id=1,
        max_timestamp_ms=START_MS,
        event_timestamp_ms=START_MS,
        segment_size_bytes=1,
        segment_leader_epochs={0: start},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_index_empty=True,
    )


class Table(bytes):
    """A remote log index of 64 KiB, as far as its length says, that is counted as long as somebody holds it."""

    held: ClassVar[int] = 0

    def __new__(cls) -> "Table":
        Table.held += 1
        return super().__new__(cls)

    def __len__(self) -> int:
        return 1 << 16

    def __del__(self) -> None:
        Table.held -= 1


class FullDisk(IndexStore):
    """Opens no index."""

    def open(self, tip: TopicIdPartition) -> IndexDirectory:
        raise OSError(28, "no space left on device")


async def test_indexes_that_cannot_be_written_are_not_kept_in_memory_without_bound(
    tmp_path: Path,
) -> None:
    """A manager whose disk is full goes on copying for all of its partitions."""
    indexes = RemoteIndexes(
        InMemoryRemoteLogMetadataManager(),
        InMemoryRemoteStorageManager(),
        FullDisk(tmp_path, rotate_bytes=1 << 20, rotate_ms=WEEK_MS),
        clock=SteppedClock(),
        unused_for_s=1e9,
    )
    for number in range(200):
        tip = partition(number=number)
        indexes.should_reach(tip, LINEAGE, 0, 99)
        for start in range(0, 1600, 100):
            indexes.copied(segment(tip, start), Table())
    await indexes.update()
    assert indexes.behind == 200
    assert Table.held * (1 << 16) <= 64 << 20


async def test_room_that_was_used_is_used_again(tmp_path: Path) -> None:
    """What is appended, or given up, makes room: indexes go on being taken from copies."""
    clock = SteppedClock()
    metadata, storage = InMemoryRemoteLogMetadataManager(), InMemoryRemoteStorageManager()
    indexes = remote_indexes(metadata, storage, clock, tmp_path)
    big = b"\0" * (1 << 16)
    for number in range(3000):
        tip = partition(number=number)
        indexes.should_reach(tip, LINEAGE, 0, -1)
        indexes.copied(segment(tip, 0), big)
    await clock.advance(2 * WEEK_MS / 1000)
    await indexes.update()
    copied = segment(partition("others"), 0)
    indexes.copied(copied, b"")
    indexes.should_reach(copied.topic_id_partition, LINEAGE, 0, 99)
    while indexes.behind:
        await indexes.update()
    assert "fetch_index" not in storage.calls


class Holes(InMemoryRemoteLogMetadataManager):
    """Lists very many segments behind a hole; counts how many were told."""

    told = 0

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        async for each in self.list_remote_log_segments_from(topic_id_partition, 0):
            yield each

    async def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        for start in (0, *range(1000, 200_000, 100)):
            if start >= start_offset:
                self.told += 1
                yield segment(topic_id_partition, start)


async def test_a_hole_is_passed_without_a_look_at_all_that_follows(tmp_path: Path) -> None:
    metadata, tip = Holes(), partition()
    indexes = remote_indexes(metadata, InMemoryRemoteStorageManager(), SteppedClock(), tmp_path)
    indexes.should_reach(tip, LINEAGE, 100, 900)
    while indexes.behind:
        await indexes.update()
    assert metadata.told <= 2


class Stuck(IndexDirectory):
    """An index whose disk hangs, and fails in the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, rotate_bytes=1 << 20, rotate_ms=WEEK_MS)
        self.entered = threading.Event()
        self.released = threading.Event()

    def append(self, *_: object) -> None:
        self.entered.set()
        self.released.wait(60)
        raise OSError(5, "input/output error")


class StuckStore(IndexStore):
    """Opens an index that hangs, then sound ones."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, rotate_bytes=1 << 20, rotate_ms=WEEK_MS)
        self.stuck = Stuck(directory)
        self.opened = 0

    def open(self, tip: TopicIdPartition) -> IndexDirectory:
        self.opened += 1
        return super().open(tip) if self.opened > 1 else self.stuck


async def test_an_index_whose_write_failed_while_nobody_waited_any_more_is_opened_again(
    tmp_path: Path,
) -> None:
    """Its file holds more than the process knows of: what is appended then would lie at other positions than those noted."""
    store = StuckStore(tmp_path)
    tip = partition()
    indexed = IndexedPartition(topic_id_partition=tip, store=store)
    entries: list[RemoteLogIndexEntry] = []
    use = asyncio.create_task(
        indexed.use(lambda index: index.append(segment(tip, 0), entries, 0, 99))
    )
    await eventually(store.stuck.entered.is_set)
    use.cancel()
    await asyncio.sleep(0)
    store.stuck.released.set()
    await asyncio.wait([use])
    assert use.cancelled()
    assert await indexed.use(lambda index: index.end_offset) == -1
    assert store.opened == 2
