"""The disk cache: survives, is bounded, shared, and never worth more than the store."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_core.ids import KafkaUuid
from aquifer_storage.adapters.disk_cache import DiskCache
from aquifer_storage.domain.chunk_cache import ChunkKey
from fixtures.polling import eventually

ONE, OTHER = KafkaUuid(b"1" * 16), KafkaUuid(b"2" * 16)


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[DiskCache]:
    cache = DiskCache(tmp_path, 100)
    yield cache
    await cache.close()


async def put(
    cache: DiskCache, number: int, size_bytes: int = 40, segment: KafkaUuid = ONE
) -> ChunkKey:
    """Put an entry and wait until it is there."""
    key = ChunkKey(segment, number)
    cache.put(key, bytes([number]) * size_bytes)

    async def is_there() -> bool:
        return await cache.get(key) is not None

    await eventually(is_there)
    return key


def held_bytes(folder: Path) -> int:
    """Size of all entries."""
    return sum(path.stat().st_size for path in folder.glob("chunks/??/*"))


async def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    first = DiskCache(tmp_path, 100)
    key = await put(first, 7)
    await first.close()
    second = DiskCache(tmp_path, 100)
    assert await second.get(key) == bytes([7]) * 40
    assert await second.get(ChunkKey(OTHER, 7)) is None
    await put(second, 8)
    await put(second, 9)
    await second.close()
    assert held_bytes(tmp_path) == 80


async def test_what_was_used_least_recently_leaves_first(cache: DiskCache, tmp_path: Path) -> None:
    first, second = await put(cache, 0), await put(cache, 1)
    assert await cache.get(first) is not None
    await put(cache, 2)
    assert await cache.get(first) is not None
    assert await cache.get(second) is None
    assert held_bytes(tmp_path) == 80


async def test_readers_are_served_while_entries_leave(cache: DiskCache, tmp_path: Path) -> None:
    """T31, T35: with a hundredth of what is read, an answer is whole or none."""
    answers: list[bytes | None] = []
    hits = 0

    async def read(number: int) -> None:
        nonlocal hits
        for each in itertools.count(number):
            answer = await cache.get(ChunkKey(ONE, each % 20))
            cache.put(ChunkKey(ONE, each % 20), bytes([each % 20]) * 40)
            answers.append(answer)
            hits += answer is not None
            # How often the one thread that writes has its turn beside the readers is up to the machine.
            if each >= number + 50 and hits:
                return

    async with asyncio.timeout(60):
        await asyncio.gather(*(read(number) for number in range(20)))
    assert all(answer is None or answer == answer[:1] * 40 for answer in answers)
    await cache.close()
    assert held_bytes(tmp_path) <= 100


async def test_a_process_that_starts_later_keeps_what_is_there(tmp_path: Path) -> None:
    """Whoever finds no index makes it; what others wrote since they looked is not taken for leftovers."""
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        caches = [DiskCache(folder, 100) for _ in range(3)]
        for number, cache in enumerate(caches[:2]):
            cache.put(ChunkKey(ONE, number), bytes([number]) * 40)
        for cache in caches:
            await cache.close()
        assert held_bytes(folder) == 80


async def test_an_index_that_could_not_be_opened_is_opened_when_it_can(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite3").mkdir()
    cache = DiskCache(tmp_path, 100)
    cache.put(ChunkKey(ONE, 1), bytes(40))
    await cache.forget(OTHER)
    assert held_bytes(tmp_path) == 0
    (tmp_path / "index.sqlite3").rmdir()
    await put(cache, 2)
    await cache.close()
    assert held_bytes(tmp_path) == 40


async def test_processes_share_one_folder_and_one_budget(tmp_path: Path) -> None:
    caches = [DiskCache(tmp_path, 100) for _ in range(3)]
    key = await put(caches[0], 0)
    assert await caches[1].get(key) is not None
    for number in range(1, 10):
        caches[number % 3].put(ChunkKey(ONE, number), bytes(40))
    for cache in caches:
        await cache.close()
    assert 0 < held_bytes(tmp_path) <= 100


async def test_a_segment_is_forgotten_and_the_others_are_not(cache: DiskCache) -> None:
    gone, kept = await put(cache, 0), await put(cache, 0, segment=OTHER)
    await cache.forget(ONE)
    assert await cache.get(gone) is None
    assert await cache.get(kept) is not None


async def test_a_damaged_index_costs_the_entries_and_nothing_else(tmp_path: Path) -> None:
    first = DiskCache(tmp_path, 100)
    lost = await put(first, 0)
    await first.close()
    (tmp_path / "index.sqlite3").write_bytes(b"no database" * 1000)
    second = DiskCache(tmp_path, 100)
    await put(second, 1)
    assert await second.get(lost) is None
    await second.close()
    assert held_bytes(tmp_path) == 40


async def test_an_index_that_is_found_damaged_later_is_made_anew_as_well(tmp_path: Path) -> None:
    """After a power failure its first page may be sound and others not; each process finds out by itself."""
    first = DiskCache(tmp_path, 100)
    lost = await put(first, 0)
    await first.close()
    index = tmp_path / "index.sqlite3"
    sound = index.read_bytes()[:4096]
    index.write_bytes(sound + b"no page!" * 2048)
    caches = [DiskCache(tmp_path, 100) for _ in range(2)]
    for cache in caches:
        await cache.forget(OTHER)
    keys = [await put(cache, number) for number, cache in enumerate(caches, start=1)]
    assert all([await cache.get(key) for key in keys for cache in caches])
    assert await caches[0].get(lost) is None
    for cache in caches:
        await cache.close()
    assert held_bytes(tmp_path) == 80


async def test_what_could_not_be_written_takes_no_room_from_what_is_there(tmp_path: Path) -> None:
    """As on a disk that is full: every entry that does not come into being would push a whole one out."""
    cache = DiskCache(tmp_path, 100)
    first, second = await put(cache, 0), await put(cache, 1)
    in_the_way = tmp_path / "chunks" / OTHER.raw.hex()[:2]
    in_the_way.write_text("in the way")
    cache.put(ChunkKey(OTHER, 2), bytes(20))
    third = await put(cache, 3, size_bytes=20)
    for key in (first, second, third):
        assert await cache.get(key) is not None
    await cache.close()


async def test_a_disk_that_refuses_costs_the_cache_only(cache: DiskCache, tmp_path: Path) -> None:
    key = ChunkKey(ONE, 1)
    (tmp_path / "chunks" / ONE.raw.hex()[:2]).write_text("in the way")
    cache.put(key, bytes(40))
    await cache.forget(OTHER)
    assert await cache.get(key) is None


async def test_a_disk_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """A file system that hangs, as a FIFO whose other end nobody opens."""
    first = DiskCache(tmp_path, 1_000)
    stuck, other = await put(first, 0), await put(first, 1)
    await first.close()
    cache = DiskCache(tmp_path, 1_000, patience_s=0.5)
    path = tmp_path / "chunks" / ONE.raw.hex()[:2] / f"{ONE.raw.hex()}-0"
    part = tmp_path / "chunks" / f"{ONE.raw.hex()}-2.{os.getpid()}.part"
    path.unlink()
    os.mkfifo(path)
    os.mkfifo(part)
    async with asyncio.timeout(120):
        assert await cache.get(stuck) is None
        assert await cache.get(other) is None  # it rests
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        cache.put(ChunkKey(ONE, 2), b"2")
        await cache.forget(ONE)
        await cache.close()
        assert held_bytes(tmp_path) > 0  # nothing could be done
        reader = os.open(part, os.O_RDONLY | os.O_NONBLOCK)
        await eventually(lambda: not held_bytes(tmp_path))
        os.close(reader)


async def test_an_entry_larger_than_the_cache_is_not_kept(cache: DiskCache) -> None:
    cache.put(ChunkKey(ONE, 1), bytes(101))
    await cache.forget(OTHER)
    assert await cache.get(ChunkKey(ONE, 1)) is None
