"""Answers of a store that are not what was asked for: nobody takes them for damage of the segment, and nothing is served from them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import CorruptSegmentError, RemoteStorageUnavailableError
from aquifer_core.segment import IndexType
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.faulty_s3 import Fault, FaultyS3
from fixtures.key_rings import new_key_ring

OPTIONS = StorageOptions(
    chunk_size_bytes=64 * 1024,
    part_size_bytes=5 * MIB,
    upload_budget_bytes=80 * MIB,
    manifest_bundle_max_bytes=0,
    read_ahead_bytes=0,
)
LOG = builders.renumbered_log(MIB, builders.record_batch(100, 16, 8_000), 100)
MISREAD = {
    "ignores ranges": Fault(ignores_range=True),
    "gives another range": Fault(other_range=True),
    "packs bodies": Fault(packed=True),
}


@pytest.fixture
def store(behind_proxy: Callable[..., S3ObjectStore]) -> S3ObjectStore:
    """The real store behind the proxy."""
    return behind_proxy(retry_timeout_s=1)


@pytest.fixture
def storage(store: S3ObjectStore) -> RemoteStorage:
    """Segments in that store."""
    return RemoteStorage(store, options=OPTIONS, writer_version="1")


@pytest.mark.parametrize("fault", MISREAD.values(), ids=MISREAD.keys())
@pytest.mark.parametrize("suffix", [".log", ".indexes"])
async def test_another_answer_than_was_asked_for_is_not_taken_for_damage(
    storage: RemoteStorage, faulty_s3: FaultyS3, fault: Fault, suffix: str
) -> None:
    metadata = await copied(storage, builders.segment(LOG))
    faulty_s3.fail("get_object", key_part=suffix, fault=fault)
    reads = {
        ".log": joined(storage.fetch_log_segment(metadata, 300_000)),
        ".indexes": storage.fetch_index(metadata, IndexType.LEADER_EPOCH),
    }
    reading = reads.pop(suffix)
    for other in reads.values():
        other.close()
    with pytest.raises(RemoteStorageUnavailableError):
        await reading
    faulty_s3.heal()
    assert await joined(storage.fetch_log_segment(metadata, 300_000)) == LOG[300_000:]
    assert await storage.fetch_index(metadata, IndexType.LEADER_EPOCH)


@pytest.mark.parametrize("fault", MISREAD.values(), ids=MISREAD.keys())
async def test_another_answer_that_comes_once_is_asked_for_again(
    storage: RemoteStorage, faulty_s3: FaultyS3, fault: Fault
) -> None:
    metadata = await copied(storage, builders.segment(LOG))
    faulty_s3.fail("get_object", key_part=".log", fault=fault, times=1)
    assert await joined(storage.fetch_log_segment(metadata, 300_000)) == LOG[300_000:]


async def test_an_object_that_was_cut_is_damage_also_behind_its_end(
    storage: RemoteStorage, store: S3ObjectStore
) -> None:
    metadata = await copied(storage, builders.segment(LOG))
    [key] = [found.key async for found in store.list_objects("") if found.key.endswith(".log")]
    await store.put(key, LOG[:100_000])
    with pytest.raises(CorruptSegmentError, match="0 found"):
        await joined(storage.fetch_log_segment(metadata, 300_000))
    findings = [step.findings async for step in storage.verify_segment(metadata)]
    assert any(findings)


SEALED = StorageOptions(codec="zstd", part_size_bytes=5 * MIB, upload_budget_bytes=80 * MIB)
IN_PARTS = replace(SEALED, single_put_max_bytes=0)


@pytest.mark.parametrize("options", [OPTIONS, SEALED, IN_PARTS], ids=["plain", "one", "parts"])
async def test_a_store_that_refuses_conditions_is_written_to_without(
    store: S3ObjectStore, faulty_s3: FaultyS3, options: StorageOptions
) -> None:
    """If-None-Match where the store has it; elsewhere a look at what is there comes first."""
    refused = Fault(status=501, code="NotImplemented", refused_header="If-None-Match")
    faulty_s3.fail(fault=refused)
    storage = RemoteStorage(store, options=options, writer_version="1")
    segment = builders.segment(LOG)
    metadata = await copied(storage, segment)
    assert await copied(storage, segment) == metadata
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG
    keys = ObjectKeys().of(metadata)
    assert not await store.create(keys.manifest, b"another")
    upload = await store.start_upload(keys.log, 5 * MIB)
    await upload.put_part(1, b"another")
    assert not await upload.complete()
    await upload.abort()
    assert not any([step.findings async for step in storage.verify_segment(metadata)])


async def test_only_the_store_itself_says_that_an_object_is_not_there(
    store: S3ObjectStore, faulty_s3: FaultyS3
) -> None:
    await store.put("key", b"12345")
    faulty_s3.fail("head_object", fault=Fault(status=404, code="NotFound"), times=1)
    assert await store.size_bytes("key") == 5
    faulty_s3.fail("head_object", fault=Fault(status=404, code="NotFound"))
    with pytest.raises(RemoteStorageUnavailableError, match="can be read"):
        await store.size_bytes("key")
    assert await store.size_bytes("other") is None
    faulty_s3.fail("get_object", fault=Fault(status=404, code="NoSuchBucket"))
    with pytest.raises(RemoteStorageUnavailableError, match="bucket"):
        await store.size_bytes("other")


async def test_rewrapping_deletes_nothing_for_a_404_of_somebody_else(
    store: S3ObjectStore, faulty_s3: FaultyS3, tmp_path: Path
) -> None:
    ring = new_key_ring(tmp_path)
    storage = RemoteStorage(
        store, options=OPTIONS, writer_version="1", key_ring=FileKeyRing(ring.path)
    )
    metadata = await copied(storage, builders.segment(LOG))
    ring.put("another")
    ring.activate("another")
    faulty_s3.fail("head_object", fault=Fault(status=404, code="NotFound"))
    with pytest.raises(RemoteStorageUnavailableError):
        await storage.rewrap_segment(metadata)
    faulty_s3.heal()
    assert (await storage.describe_segment(metadata)).key_id == "another"
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG
