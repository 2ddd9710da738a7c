"""The chunk cache: one budget, waiting in turn, pins, nothing kept of failures."""

import asyncio

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.ids import KafkaUuid
from aquifer_storage.domain.chunk_cache import ChunkCache, ChunkEntry, ChunkKey

SEGMENT = KafkaUuid(b"s" * 16)


def key(number: int) -> ChunkKey:
    """A chunk of the one segment."""
    return ChunkKey(SEGMENT, number)


async def loaded(cache: ChunkCache, number: int, size_bytes: int = 10) -> ChunkEntry:
    """A chunk that was read and is not in use."""
    entry = cache.add(key(number), size_bytes)
    await cache.give_room(entry)
    cache.complete(entry, bytes(size_bytes))
    return entry


async def test_what_was_used_least_recently_leaves_first() -> None:
    cache = ChunkCache(30)
    first, *_ = [await loaded(cache, number) for number in range(3)]
    cache.pin(first)
    cache.unpin(first)
    await loaded(cache, 3)
    assert [cache.find(key(number)) is not None for number in range(4)] == [True, False, True, True]
    assert cache.used_bytes == 30


async def test_chunks_in_use_stay_and_newcomers_wait_their_turn() -> None:
    """T50: over budget means wait, never grow."""
    cache = ChunkCache(20)
    held = [await loaded(cache, number) for number in range(2)]
    for entry in held:
        cache.pin(entry)
    newcomers = [cache.add(key(number), 10) for number in (2, 3)]
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(cache.give_room(entry)) for entry in newcomers]
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        cache.unpin(held[0])
        await waits[0]
        assert not waits[1].done()
        assert cache.used_bytes == 20
        cache.unpin(held[1])
    assert cache.used_bytes == 20
    assert all(cache.find(entry.key) is None for entry in held)


async def test_who_stops_waiting_takes_no_room() -> None:
    cache = ChunkCache(10)
    held = await loaded(cache, 0)
    cache.pin(held)
    gone, last = cache.add(key(1), 10), cache.add(key(2), 10)
    wait = asyncio.create_task(cache.give_room(gone))
    async with asyncio.TaskGroup() as group:
        group.create_task(cache.give_room(last))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        cache.fail(gone, RemoteStorageUnavailableError("closing"))
        cache.unpin(held)
    assert last.has_room
    assert cache.used_bytes == 10


async def test_a_chunk_larger_than_the_cache_is_let_in_alone() -> None:
    cache = ChunkCache(10)
    await loaded(cache, 0)
    entry = await loaded(cache, 1, size_bytes=25)
    assert cache.find(key(0)) is None
    assert cache.used_bytes == 25
    await loaded(cache, 2)
    assert cache.find(entry.key) is None


async def test_failed_loads_are_not_kept_and_all_who_wait_are_told() -> None:
    """T34: a failed load does not poison the cache."""
    cache = ChunkCache(10)
    entry = cache.add(key(0), 10)
    await cache.give_room(entry)
    cache.pin(entry)
    cache.fail(entry, RemoteStorageUnavailableError("no"))
    with pytest.raises(RemoteStorageUnavailableError):
        await entry.loaded
    assert cache.find(key(0)) is None
    assert cache.used_bytes == 10
    cache.unpin(entry)
    assert cache.used_bytes == 0


async def test_chunks_read_ahead_fill_half_of_the_cache_and_never_wait() -> None:
    """T31: read-ahead does not push out what is in use."""
    cache = ChunkCache(40)
    ahead = [cache.add_ahead(key(number), 10) for number in range(3)]
    assert [entry is not None for entry in ahead] == [True, True, False]
    used = ahead[0]
    assert used is not None
    cache.complete(used, bytes(10))
    cache.pin(used)
    assert cache.unread_bytes == 10
    assert cache.add_ahead(key(2), 10) is not None


async def test_a_forgotten_segment_leaves_when_its_use_ends() -> None:
    cache = ChunkCache(30)
    in_use, idle = await loaded(cache, 0), await loaded(cache, 1)
    cache.pin(in_use)
    cache.forget(SEGMENT)
    assert cache.find(in_use.key) is None
    assert cache.find(idle.key) is None
    assert cache.used_bytes == 10
    cache.unpin(in_use)
    assert cache.used_bytes == 0
