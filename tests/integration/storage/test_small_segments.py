"""Small segments: fewer objects and requests, and what protects them all the same."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    CorruptSegmentError,
    RemoteResourceNotFoundError,
)
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.manifest_codec import encode_abandoned
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.hooked_object_store import COPY_OPTIONS as OPTIONS
from fixtures.hooked_object_store import HookedObjectStore

SMALL, LARGE = 15_000, 90_000
"""The indexes of a small one lie in its manifest."""


async def test_a_small_segment_is_first_read_with_one_request(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """Its chunk table came with its metadata; what was copied before, and read from the manifest, came with it too."""
    segment = builders.segment(size_bytes=SMALL)
    metadata = await copied(storage, segment)
    again = await storage.copy_log_segment_data(segment.metadata, segment.data)
    assert again.custom_metadata == metadata.custom_metadata
    described = await storage.describe_segment(segment.metadata)
    assert described.custom_metadata == metadata.custom_metadata
    for cold in (metadata, replace(metadata, custom_metadata=None)):
        reader = RemoteStorage(objects, options=OPTIONS, writer_version="1")
        objects.operations.clear()
        read = reader.fetch_records(cold, cold.start_offset, LARGE)
        assert await joined(read) == segment.log
        steps = [(op, Path(key).suffix) for op, key in objects.operations]
        without = [("get", ".manifest")] if cold.custom_metadata is None else []
        assert steps == [*without, ("read", ".log")]


async def test_a_repeat_of_a_small_copy_changes_nothing(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """The log that is sent again is refused, also when it is another one."""
    segment = builders.segment(size_bytes=SMALL)
    result = await storage.copy_log_segment_data(segment.metadata, segment.data)
    other = bytearray(segment.log)
    batch = builders.record_batch(100, 1, 9)
    other[: len(batch)] = batch
    for log in (segment.log, bytes(other)):
        source = builders.BytesLogSource(data=log)
        repeat = segment.with_data(log_segment=source)
        with suppress(AquiferError):
            again = await storage.copy_log_segment_data(repeat.metadata, repeat.data)
            assert again == result
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log
    assert objects.count("put") == 0, "nothing is written over"


async def test_what_a_crash_left_of_a_small_copy_is_written_over(
    storage: RemoteStorage, objects: HookedObjectStore, files: FilesystemObjectStore
) -> None:
    """Without a manifest it is no segment; a mark in the manifest's place is a segment that is not to be.

    What has another size is another copy's, sealed or compressed, and may be about to be finished.
    """
    segment = builders.segment(size_bytes=SMALL)
    await copied(storage, segment)
    (log, manifest) = (await storage.describe_segment(segment.metadata)).object_keys
    await files.delete([manifest])
    await files.put(log, bytes(len(segment.log)))
    await copied(storage, segment)
    assert await files.get(log) == segment.log
    await files.delete([manifest])
    await files.put(log, segment.log[:-1])
    with pytest.raises(ConcurrentUpdateError, match="delete it"):
        await copied(storage, segment)
    assert await files.get(log) == segment.log[:-1]
    await files.put(log, segment.log)
    await files.put(manifest, encode_abandoned("test"))
    with pytest.raises(ConcurrentUpdateError):
        await copied(storage, segment)
    assert await files.size_bytes(log) is None, "what is not to be leaves no log"


@pytest.mark.parametrize("confirmed", [".log", ".manifest"])
async def test_a_store_that_confirms_the_log_is_asked_only_whether_it_is_still_there(
    storage: RemoteStorage, objects: HookedObjectStore, confirmed: str
) -> None:
    """What it confirms of other writes says nothing of this one."""
    objects.confirmed = (confirmed,)
    for _ in range(2):
        objects.operations.clear()
        await copied(storage, builders.segment(size_bytes=SMALL))
        assert [(step, Path(key).suffix) for step, key in objects.operations] == [
            ("create", ".log"),
            *([] if confirmed == ".log" else [("size_bytes", ".log")]),
            ("create", ".manifest"),
            ("size_bytes", ".log"),
        ]


async def test_a_small_segment_that_is_gone_or_damaged_is_told_so(
    storage: RemoteStorage, files: FilesystemObjectStore
) -> None:
    segment = builders.segment(size_bytes=SMALL)
    metadata = await copied(storage, segment)
    (key, _) = (await storage.describe_segment(metadata)).object_keys
    await files.put(key, bytes(len(segment.log)))
    with pytest.raises(CorruptSegmentError, match="chunk 0 at position 0"):
        await joined(storage.fetch_log_segment(metadata, 0))
    await files.delete([key])
    with pytest.raises(RemoteResourceNotFoundError):
        await joined(storage.fetch_log_segment(metadata, 0))
