"""The index cache on disk (SR-34, K-3.6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aquifer_core.errors import (
    CorruptIndexError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata
from aquifer_manager.adapters.index_cache import DiskIndexCache
from fixtures.manager_segments import Segment, batch
from fixtures.manager_world import partition

TIP = partition()
OFFSET_INDEX_FILE_BYTES = 8 * 10 + 4


@pytest.fixture
def storage() -> InMemoryRemoteStorageManager:
    return InMemoryRemoteStorageManager()


async def stored(
    storage: InMemoryRemoteStorageManager, base: int = 0, **kwargs: Any
) -> RemoteLogSegmentMetadata:
    segment = Segment(tip=TIP, batches=[batch(base + n) for n in range(10)], **kwargs)
    metadata = segment.metadata()
    await storage.copy_log_segment_data(metadata, segment.data())
    return metadata


@asynccontextmanager
async def caching(
    storage: InMemoryRemoteStorageManager, directory: Path, **kwargs: Any
) -> AsyncIterator[DiskIndexCache]:
    async with DiskIndexCache(storage, directory, **{"max_bytes": 1 << 20, **kwargs}) as cache:
        yield cache


def files(directory: Path) -> list[Path]:
    return sorted((directory / "remote-log-index-cache").iterdir())


async def test_an_index_is_fetched_once_and_survives_a_restart(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        first = await cache.index(metadata, IndexType.OFFSET)
        assert await cache.index(metadata, IndexType.OFFSET) == first
    async with caching(storage, tmp_path) as cache:
        assert await cache.index(metadata, IndexType.OFFSET) == first
        assert (len(cache), cache.total_bytes) == (1, OFFSET_INDEX_FILE_BYTES)
    assert storage.calls.count("fetch_index") == 1
    assert files(tmp_path)[0].name == f"{0:020d}_{metadata.segment_id.id}.index"


async def test_many_who_ask_at_once_share_one_fetch(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        found = await asyncio.gather(
            *(cache.index(metadata, IndexType.TIMESTAMP) for _ in range(20))
        )
    assert len(set(found)) == 1
    assert storage.calls.count("fetch_index") == 1


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * OFFSET_INDEX_FILE_BYTES])
async def test_a_damaged_file_is_fetched_again(
    storage: InMemoryRemoteStorageManager, tmp_path: Path, damage: bytes
) -> None:
    """Verified whenever it is read."""
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        intact = await cache.index(metadata, IndexType.OFFSET)
        files(tmp_path)[0].write_bytes(damage)
        assert await cache.index(metadata, IndexType.OFFSET) == intact
        assert await cache.index(metadata, IndexType.OFFSET) == intact
    assert storage.calls.count("fetch_index") == 2


async def test_a_file_that_vanished_is_fetched_again(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    """T35: nothing stats a file that is gone."""
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        intact = await cache.index(metadata, IndexType.OFFSET)
        files(tmp_path)[0].unlink()
        assert await cache.index(metadata, IndexType.OFFSET) == intact
        assert cache.total_bytes == OFFSET_INDEX_FILE_BYTES


async def test_a_file_that_cannot_be_read_is_fetched_again(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    """A disk that fails must not stop reads."""
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        first = await cache.index(metadata, IndexType.OFFSET)
        [file] = files(tmp_path)
        file.unlink()
        file.mkdir()
        for _ in range(2):
            assert await cache.index(metadata, IndexType.OFFSET) == first


async def test_what_could_not_be_kept_takes_up_no_room(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    """A full disk would stay full of half-written files that no bound counts."""
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        await cache.index(metadata, IndexType.OFFSET)
        [file] = files(tmp_path)
        file.unlink()
        file.mkdir()  # no file can be put in its place
        await cache.index(metadata, IndexType.OFFSET)
        assert files(tmp_path) == [file]


async def test_a_file_that_cannot_be_evicted_does_not_keep_others_from_being_read(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    one, other = await stored(storage), await stored(storage, 10)
    async with caching(storage, tmp_path, max_entries=1) as cache:
        await cache.index(one, IndexType.OFFSET)
        [file] = files(tmp_path)
        file.unlink()
        file.mkdir()
        assert await cache.index(other, IndexType.OFFSET)
        assert len(cache) == 1


async def test_failures_are_not_remembered(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    """T34: one failed load does not poison the cache."""
    metadata = await stored(storage)
    storage.fail("fetch_index", RemoteStorageUnavailableError("down"))
    async with caching(storage, tmp_path) as cache:
        with pytest.raises(RemoteStorageUnavailableError):
            await cache.index(metadata, IndexType.OFFSET)
        assert await cache.index(metadata, IndexType.OFFSET)


@pytest.mark.parametrize("limit", [{"max_bytes": 3 * OFFSET_INDEX_FILE_BYTES}, {"max_entries": 3}])
async def test_the_least_recently_used_go_first(
    storage: InMemoryRemoteStorageManager, tmp_path: Path, limit: dict[str, int]
) -> None:
    """SR-34: bounded in bytes and in entries."""
    segments = [await stored(storage, base) for base in range(0, 40, 10)]
    async with caching(storage, tmp_path, **limit) as cache:
        for metadata in segments[:3]:
            await cache.index(metadata, IndexType.OFFSET)
        await cache.index(segments[0], IndexType.OFFSET)
        await cache.index(segments[3], IndexType.OFFSET)
        assert len(cache) == 3
        before = storage.calls.count("fetch_index")
        await cache.index(segments[0], IndexType.OFFSET)
        assert storage.calls.count("fetch_index") == before
        await cache.index(segments[1], IndexType.OFFSET)
        assert storage.calls.count("fetch_index") == before + 1
    assert len(files(tmp_path)) == 3


async def test_an_index_larger_than_the_cache_is_still_answered(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = await stored(storage)
    async with caching(storage, tmp_path, max_bytes=1) as cache:
        assert len(await cache.index(metadata, IndexType.OFFSET)) == 80
        assert (len(cache), cache.total_bytes) == (0, 0)


async def test_a_missing_transaction_index_is_empty_and_remembered(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        assert await cache.index(metadata, IndexType.TRANSACTION) == b""
        assert await cache.index(metadata, IndexType.TRANSACTION) == b""
    assert storage.calls.count("fetch_index") == 1


async def test_a_missing_segment_is_not_an_empty_index(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = Segment(tip=TIP, batches=[batch(0)]).metadata()
    async with caching(storage, tmp_path) as cache:
        for index_type in (IndexType.TRANSACTION, IndexType.OFFSET):
            with pytest.raises(RemoteResourceNotFoundError):
                await cache.index(metadata, index_type)


class DamagedStorage(InMemoryRemoteStorageManager):
    """Gives out indexes cut short."""

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return (await super().fetch_index(metadata, index_type))[:-3]


@pytest.mark.parametrize(
    "index_type", [IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION]
)
async def test_an_index_damaged_in_the_store_is_refused_and_not_kept(
    tmp_path: Path, index_type: IndexType
) -> None:
    storage = DamagedStorage()
    entry = AbortedTransaction(producer_id=1, first_offset=0, last_offset=1, last_stable_offset=2)
    metadata = await stored(storage, aborted=[entry])
    async with caching(storage, tmp_path) as cache:
        with pytest.raises(CorruptIndexError):
            await cache.index(metadata, index_type)
    assert files(tmp_path) == []


async def test_a_load_goes_on_when_the_one_who_asked_gives_up(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    metadata = await stored(storage)
    async with caching(storage, tmp_path) as cache:
        asked = asyncio.create_task(cache.index(metadata, IndexType.OFFSET))
        await asyncio.sleep(0)
        other = asyncio.create_task(cache.index(metadata, IndexType.OFFSET))
        await asyncio.sleep(0)
        asked.cancel()
        assert await other
    assert asked.cancelled()
    assert storage.calls.count("fetch_index") == 1


async def test_what_an_earlier_process_left_half_written_goes(
    storage: InMemoryRemoteStorageManager, tmp_path: Path
) -> None:
    directory = tmp_path / "remote-log-index-cache"
    directory.mkdir()
    (directory / "0_x.index.tmp").write_bytes(b"half")
    async with caching(storage, tmp_path):
        assert files(tmp_path) == []
