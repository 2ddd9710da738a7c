"""What a copy and its first read ask of the store, and in which order."""

from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.hooked_object_store import HookedObjectStore

SMALL, LARGE = 15_000, 90_000
"""The indexes of a small one lie in its manifest."""


async def test_large_segments_need_few_requests(tmp_path: Path) -> None:
    """At most 60 writing requests for each GiB, with the options that are the default."""
    store = FilesystemObjectStore(tmp_path)
    storage = RemoteStorage(store, options=StorageOptions(), writer_version="1")
    log = builders.renumbered_log(256 << 20, builders.record_batch(0, 64, 8_000))
    segment = builders.segment(log, start_offset=0)
    await copied(storage, segment)
    writing = ("put_object", "create_upload", "upload_part", "complete_upload")
    assert sum(store.totals.requests[operation] for operation in writing) * 4 <= 60
    await storage.delete_log_segment_data(segment.metadata)
    await storage.close()


@pytest.mark.parametrize(
    ("size_bytes", "written"),
    [(SMALL, [".log", ".manifest"]), (LARGE, [".log", ".indexes", ".manifest"])],
)
async def test_the_manifest_comes_last_and_goes_first(
    storage: RemoteStorage, objects: HookedObjectStore, size_bytes: int, written: list[str]
) -> None:
    segment = builders.segment(size_bytes=size_bytes)
    await copied(storage, segment)
    writes = [key for step, key in objects.operations if step in ("put", "create", "complete")]
    assert [Path(key).suffix for key in writes] == written
    described = await storage.describe_segment(segment.metadata)
    assert [Path(key).suffix for key in described.object_keys] == written
    await storage.delete_log_segment_data(segment.metadata)
    deletes = [key for operation, key in objects.operations if operation == "delete"]
    assert [Path(key).suffix for key in deletes] == [".manifest", ".indexes", ".log", ".manifest"]


async def test_custom_metadata_saves_the_manifest_of_the_first_read(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """A cold fetch costs one index read and one ranged read for each chunk at most."""
    segment = builders.segment(size_bytes=LARGE)
    metadata = await copied(storage, segment)
    objects.operations.clear()
    await joined(storage.fetch_records(metadata, metadata.start_offset, 1))
    assert [(op, Path(key).suffix) for op, key in objects.operations] == [
        ("get", ".indexes"),
        ("read", ".log"),
    ]
    other = replace(metadata, custom_metadata=None)
    assert await joined(storage.fetch_log_segment(other, 0)) == segment.log
