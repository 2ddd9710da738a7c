"""Reads: shared, verified, going on when their caller has left, within one budget."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import (
    CorruptSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_storage.adapters.disk_cache import DiskCache
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.hooked_object_store import HookedObjectStore
from fixtures.polling import eventually

CHUNK_BYTES = 4_000
OPTIONS = StorageOptions(
    chunk_size_bytes=CHUNK_BYTES,
    chunk_cache_bytes=200_000,
    read_ahead_bytes=30_000,
    read_size_bytes=15_000,
    manifest_bundle_max_bytes=0,
)


@pytest.fixture
async def objects(tmp_path: Path) -> HookedObjectStore:
    return HookedObjectStore(FilesystemObjectStore(tmp_path))


@pytest.fixture
async def storage(objects: HookedObjectStore) -> AsyncIterator[RemoteStorage]:
    storage = RemoteStorage(objects, options=OPTIONS, writer_version="1")
    yield storage
    await storage.close()


def log_path(tmp_path: Path) -> Path:
    """The one `.log` object."""
    (path,) = tmp_path.rglob("*.log")
    return path


def bundle_path(tmp_path: Path, metadata: RemoteLogSegmentMetadata) -> Path:
    """The `.indexes` object of a segment."""
    (path,) = tmp_path.rglob(f"*{metadata.segment_id.id}.indexes")
    return path


async def test_concurrent_readers_of_one_chunk_share_one_read(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    segment = builders.segment(size_bytes=3_000)
    metadata = await copied(storage, segment)
    found = await asyncio.gather(
        *(joined(storage.fetch_log_segment(metadata, 0)) for _ in range(50))
    )
    assert set(found) == {segment.log}
    assert objects.count("read") == 1
    assert objects.count("get", ".indexes") == 1


async def test_a_read_goes_on_when_its_caller_has_left(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """SR-19: what a consumer gave up on is there when it asks again."""
    segment = builders.segment(size_bytes=3_000)
    metadata = await copied(storage, segment)
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "read":
            reached.set()
            await go.wait()

    objects.before = hold
    reader = asyncio.create_task(joined(storage.fetch_log_segment(metadata, 0)))
    await reached.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    go.set()
    await eventually(lambda: objects.count("read") == 1)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
    assert objects.count("read") == 1


async def test_a_failed_read_is_not_remembered(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """T34."""
    segment = builders.segment(size_bytes=3_000)
    metadata = await copied(storage, segment)
    for failing in ("get", "read"):

        async def fail(operation: str, key: str, failing: str = failing) -> None:
            if operation == failing:
                raise RemoteStorageUnavailableError("no", retry_after_ms=1)

        objects.before = fail
        with pytest.raises(RemoteStorageUnavailableError):
            await joined(storage.fetch_log_segment(metadata, 0))
        objects.before = HookedObjectStore(objects).before
        assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
        storage.chunks.forget(metadata)
        storage._tables.forget(metadata)


async def test_a_damaged_chunk_is_never_served_and_the_others_are(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    """T63: damage is told with segment, chunk and position."""
    segment = builders.segment(size_bytes=40_000)
    metadata = await copied(storage, segment)
    log = bytearray(log_path(tmp_path).read_bytes())
    log[10_000] ^= 1
    log_path(tmp_path).write_bytes(log)
    served: list[bytes] = []

    async def serve() -> None:
        async for piece in storage.fetch_log_segment(metadata, 0):
            served.append(bytes(piece))  # noqa: PERF401 - what came before the error counts

    with pytest.raises(CorruptSegmentError) as raised:
        await serve()
    number, position = (int(raised.value.metadata[name]) for name in ("chunk", "position"))
    assert raised.value.metadata["segmentId"] == str(metadata.segment_id.id)
    assert position <= 10_000 < position + 2 * CHUNK_BYTES
    assert b"".join(served) == segment.log[:position]
    with pytest.raises(CorruptSegmentError):
        await joined(storage.fetch_log_segment(metadata, 10_000, 10_000))
    after = position + 2 * CHUNK_BYTES
    assert await joined(storage.fetch_log_segment(metadata, after)) == segment.log[after:]
    findings = [
        finding
        async for progress in storage.verify_segment(metadata)
        for finding in progress.findings
    ]
    assert [(found.part, found.chunk, found.position) for found in findings] == [
        ("log", number, position)
    ]


async def test_a_cut_object_is_damage_and_a_missing_one_is_not_found(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    segment = builders.segment(size_bytes=40_000)
    metadata = await copied(storage, segment)
    path = log_path(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptSegmentError):
        await joined(storage.fetch_log_segment(metadata, 0))
    path.unlink()
    storage.chunks.forget(metadata)
    with pytest.raises(RemoteResourceNotFoundError):
        await joined(storage.fetch_log_segment(metadata, 0))
    steps = [step async for step in storage.verify_segment(metadata)]
    assert [finding.part for step in steps for finding in step.findings] == ["log"]


async def test_a_sequential_reader_needs_few_requests(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    segment = builders.segment(size_bytes=400_000)
    metadata = await copied(storage, segment)
    offset, found = metadata.start_offset, b""
    while offset <= metadata.end_offset:
        data = await joined(storage.fetch_records(metadata, offset, 1_500))
        found += data
        offset = list(iter_batches(data))[-1].next_offset
    assert found == segment.log
    chunk_count = (await storage.describe_segment(metadata)).chunk_count
    assert objects.count("read") < chunk_count / 2


async def test_a_reader_that_stops_early_has_read_little(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """Brokers open a stream without an end and close it early (K-1.1)."""
    segment = builders.segment(size_bytes=400_000)
    metadata = await copied(storage, segment)
    async with aclosing(storage.fetch_log_segment(metadata, 0)) as pieces:
        await anext(pieces)
    await storage.chunks.close()
    assert objects.count("read") == 1
    assert storage.chunks.cache.used_bytes < 2 * CHUNK_BYTES


async def test_a_request_that_names_its_size_is_read_ahead_at_once(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    segment = builders.segment(size_bytes=15_000)
    metadata = await copied(storage, segment)
    await joined(storage.fetch_records(metadata, metadata.start_offset, 15_000))
    assert objects.count("read") == 1


async def test_read_ahead_crosses_into_the_next_segment(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    first, following = builders.segment(size_bytes=3_000), builders.segment(size_bytes=3_000)
    metadata, next_metadata = await copied(storage, first), await copied(storage, following)
    found = storage.fetch_positioned_records(
        metadata, metadata.start_offset, 1 << 20, next_segment=next_metadata
    )
    assert b"".join([bytes(data) async for _, data in found]) == first.log
    await eventually(lambda: objects.count("read") == 2)
    assert await joined(storage.fetch_log_segment(next_metadata, 0)) == following.log
    assert objects.count("read") == 2


async def test_many_cold_readers_stay_inside_the_budget(
    objects: HookedObjectStore, tmp_path: Path
) -> None:
    """T50: 500 cold readers."""
    options = replace(OPTIONS, chunk_cache_bytes=40_000)
    storage = RemoteStorage(objects, options=options, writer_version="1")
    segment = builders.segment(size_bytes=200_000)
    metadata = await copied(storage, segment)
    cache, most_bytes = storage.chunks.cache, 0

    async def read(number: int) -> bytes:
        nonlocal most_bytes
        start = number * 397
        found = b""
        async for piece in storage.fetch_log_segment(metadata, start, start + 20_000):
            most_bytes = max(most_bytes, cache.used_bytes)
            await asyncio.sleep(0)
            found += piece
        return found

    found = await asyncio.gather(*(read(number) for number in range(500)))
    for number, data in enumerate(found):
        assert data == segment.log[number * 397 : number * 397 + 20_001]
    assert most_bytes <= 40_000
    await storage.close()


async def test_chunks_on_disk_survive_a_restart_and_damage(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """T34: a damaged entry is read again from the store."""
    folder = tmp_path_factory.mktemp("disk")
    segment = builders.segment(size_bytes=40_000)

    async def reads(metadata: RemoteLogSegmentMetadata, *, delete: bool = False) -> int:
        """Reads with a new process's eyes and returns how often the store was asked."""
        objects = HookedObjectStore(FilesystemObjectStore(tmp_path))
        held = DiskCache(folder, 1 << 20)
        storage = RemoteStorage(objects, options=OPTIONS, writer_version="1", held_chunks=held)
        assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
        if delete:
            await storage.delete_log_segment_data(metadata)
        await storage.close()
        return objects.count("read")

    copier = RemoteStorage(FilesystemObjectStore(tmp_path), options=OPTIONS, writer_version="1")
    metadata = await copied(copier, segment)
    await copier.close()
    assert await reads(metadata) > 0
    assert await reads(metadata) == 0
    entries = sorted(folder.glob("chunks/??/*"))
    entries[3].write_bytes(b"x" + entries[3].read_bytes()[1:])
    entries[4].write_bytes(b"")
    assert await reads(metadata) in (1, 2)
    assert await reads(metadata, delete=True) == 0
    assert not list(folder.glob("chunks/??/*"))


async def test_a_range_is_warmed_on_request_as_far_as_there_is_room(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    segment = builders.segment(size_bytes=400_000)
    metadata = await copied(storage, segment)
    steps = [step async for step in storage.warm_segment(metadata, 8_000, 39_999)]
    assert steps[-1].done
    assert 32_000 <= steps[-1].warmed_bytes == steps[-1].total_bytes <= 32_000 + 2 * CHUNK_BYTES
    reads = objects.count("read")
    found = await joined(storage.fetch_log_segment(metadata, 8_000, 39_999))
    assert found == segment.log[8_000:40_000]
    assert objects.count("read") == reads
    *_, last = [step async for step in storage.warm_segment(metadata)]
    assert last.done
    assert last.warmed_bytes < last.total_bytes == len(segment.log)
    assert storage.chunks.cache.used_bytes <= OPTIONS.chunk_cache_bytes
    *_, nothing = [step async for step in storage.warm_segment(metadata, len(segment.log) + 1)]
    assert (nothing.warmed_bytes, nothing.total_bytes, nothing.done) == (0, 0, True)


async def test_every_offset_is_read_from_the_chunk_that_holds_it(storage: RemoteStorage) -> None:
    segment = builders.segment(size_bytes=50_000)
    metadata = await copied(storage, segment)
    for batch in iter_batches(segment.log):
        positioned = storage.fetch_positioned_records(metadata, batch.base_offset, 1)
        assert [(at, bytes(data)) async for at, data in positioned] == [
            (batch.position, bytes(batch.data))
        ]


async def test_the_table_of_another_segment_is_refused(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    one, other = builders.segment(size_bytes=9_000), builders.segment(size_bytes=9_000)
    metadata, other_metadata = await copied(storage, one), await copied(storage, other)
    mine, theirs = (bundle_path(tmp_path, m) for m in (metadata, other_metadata))
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(CorruptSegmentError):
        await joined(storage.fetch_log_segment(metadata, 0))


async def test_closing_ends_reads_and_tells_their_readers(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    metadata = await copied(storage, builders.segment())
    reached = asyncio.Event()

    async def hang(operation: str, key: str) -> None:
        if operation == "read":
            reached.set()
            await asyncio.Event().wait()

    objects.before = hang
    reader = asyncio.create_task(joined(storage.fetch_log_segment(metadata, 0)))
    await reached.wait()
    await storage.close()
    with pytest.raises(RemoteStorageUnavailableError, match="closing"):
        await reader
