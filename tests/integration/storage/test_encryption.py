"""Sealed segments: rotation, missing keys, tampering in the store, races between processes."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import pytest
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.errors import (
    ConcurrentUpdateError,
    CorruptSegmentError,
    ErrorReason,
    PreconditionError,
    RemoteResourceNotFoundError,
)
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.app import running_server
from aquifer_storage.domain.options import StorageOptions, TopicOptions
from aquifer_storage.domain.ports import Written
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.settings import (
    Backend,
    EncryptionSettings,
    FilesystemSettings,
    StorageSettings,
)
from contract.remote_storage_manager import copied, joined
from fixtures.hooked_object_store import HookedObjectStore, HookedUpload
from fixtures.key_rings import KeyRingFiles, new_key_ring

OPTIONS = StorageOptions(
    chunk_size_bytes=4_000,
    codec="zstd",
    part_size_bytes=10_000,
    single_put_max_bytes=20_000,
    upload_budget_bytes=60_000,
    manifest_bundle_max_bytes=0,
    cleanup_timeout_s=5,
)


@pytest.fixture
def ring(tmp_path: Path) -> KeyRingFiles:
    return new_key_ring(tmp_path / "keys", "a")


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[HookedObjectStore]:
    files = FilesystemObjectStore(tmp_path / "segments")
    await files.check()
    yield HookedObjectStore(files)
    await files.close()


def opened(objects: HookedObjectStore, ring: KeyRingFiles | None) -> RemoteStorage:
    """A process over the store."""
    key_ring = None if ring is None else FileKeyRing(ring.path)
    return RemoteStorage(objects, options=OPTIONS, writer_version="1", key_ring=key_ring)


@pytest.fixture
async def storage(objects: HookedObjectStore, ring: KeyRingFiles) -> AsyncIterator[RemoteStorage]:
    storage = opened(objects, ring)
    yield storage
    await storage.close()


def stored_file(folder: Path, metadata: RemoteLogSegmentMetadata, suffix: str) -> Path:
    """The file of an object of a segment."""
    (path,) = (folder / "segments").rglob(f"*{metadata.segment_id.id}{suffix}")
    return path


async def test_nothing_of_the_log_and_its_indexes_is_stored_in_the_clear(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    segment = builders.segment(producer_snapshot=b"producer snapshot in the clear")
    metadata = await copied(storage, segment)
    stored = stored_file(tmp_path, metadata, ".log").read_bytes()
    bundle = stored_file(tmp_path, metadata, ".indexes").read_bytes()
    for batch in segment.batches:
        assert batch[100:140] not in stored
    assert b"in the clear" not in bundle
    assert segment.data.offset_index[:8] not in bundle
    described = await storage.describe_segment(metadata)
    assert (described.codec, described.key_id) == ("zstd", "a")
    steps = [step async for step in storage.verify_segment(metadata)]
    assert not any(step.findings for step in steps)
    assert steps[-1].verified_bytes == steps[-1].total_bytes == described.stored_bytes


async def test_a_key_is_rotated_and_retired_without_touching_data(
    objects: HookedObjectStore, storage: RemoteStorage, ring: KeyRingFiles, tmp_path: Path
) -> None:
    """Copy with key a, rotate to b, rewrap, retire a: readers with old caches and new readers go on."""
    segment = builders.segment(size_bytes=50_000)
    metadata = await copied(storage, segment)
    cached = opened(objects, ring)
    assert await cached.fetch_index(metadata, IndexType.OFFSET) == segment.data.offset_index
    manifest = opened(objects, ring)
    assert (await manifest.describe_segment(metadata)).key_id == "a"
    before = {
        suffix: stored_file(tmp_path, metadata, suffix).read_bytes()
        for suffix in (".log", ".indexes", ".manifest")
    }
    ring.put("b")
    ring.activate("b")
    done = await storage.rewrap_segment(metadata)
    assert (done.previous_key_id, done.key_id, done.is_rewrapped) == ("a", "b", True)
    for suffix, data in before.items():
        is_same = stored_file(tmp_path, metadata, suffix).read_bytes() == data
        assert is_same == (suffix != ".manifest")
    ring.remove("a", active="b")
    again = await storage.rewrap_segment(metadata)
    assert (again.previous_key_id, again.key_id, again.is_rewrapped) == ("b", "b", False)
    assert (await storage.describe_segment(metadata)).key_id == "b"
    for reader in (storage, cached, manifest, opened(objects, ring)):
        assert await joined(reader.fetch_log_segment(metadata, 0)) == segment.log
        assert await reader.fetch_index(metadata, IndexType.OFFSET) == segment.data.offset_index


async def test_rewrapping_leaves_indexes_in_the_manifest_as_they_are(
    objects: HookedObjectStore, ring: KeyRingFiles, tmp_path: Path
) -> None:
    """They are sealed there as well, and read with one request for the manifest."""
    options = replace(OPTIONS, manifest_bundle_max_bytes=1 << 16)
    storage = RemoteStorage(
        objects, options=options, writer_version="1", key_ring=FileKeyRing(ring.path)
    )
    segment = builders.segment(size_bytes=9_000, producer_snapshot=b"snapshot in the clear")
    metadata = await copied(storage, segment)
    path = stored_file(tmp_path, metadata, ".manifest")
    bundle = base64.b64decode(json.loads(path.read_bytes())["bundle"])
    assert metadata.custom_metadata is None
    assert b"in the clear" not in bundle
    assert [
        key.rpartition(".")[2] for key in (await storage.describe_segment(metadata)).object_keys
    ] == ["log", "manifest"]
    ring.put("b")
    ring.activate("b")
    assert (await storage.rewrap_segment(metadata)).is_rewrapped
    assert base64.b64decode(json.loads(path.read_bytes())["bundle"]) == bundle
    ring.remove("a", active="b")
    reader = opened(objects, ring)
    objects.operations.clear()
    assert await joined(reader.fetch_log_segment(metadata, 0)) == segment.log
    assert await reader.fetch_index(metadata, IndexType.OFFSET) == segment.data.offset_index
    assert objects.count("get") == objects.count("get", ".manifest") == 1
    findings = [each async for step in reader.verify_segment(metadata) for each in step.findings]
    assert not findings


async def test_rewrapping_keeps_what_a_later_version_has_put_into_the_manifest(
    storage: RemoteStorage, ring: KeyRingFiles, tmp_path: Path
) -> None:
    """Replicas are upgraded one by one, and an earlier one may be asked to rewrap."""
    metadata = await copied(storage, builders.segment())
    path = stored_file(tmp_path, metadata, ".manifest")
    document = json.loads(path.read_bytes())
    document["indexes"]["later_index"] = {"position": 9, "size_bytes": 5, "sha256": "0" * 64}
    document["later"] = {"a": 1}
    path.write_bytes(with_checksum(document))
    ring.put("b")
    ring.activate("b")
    assert (await storage.rewrap_segment(metadata)).is_rewrapped
    written = json.loads(path.read_bytes())
    assert path.read_bytes() == with_checksum(written)
    assert written.pop("encryption")["key_id"] == "b"
    for each in (document, written):
        each.pop("encryption", None)
        each.pop("checksum")
    assert written == document


def with_checksum(document: dict[str, Any]) -> bytes:
    """A manifest as services write it."""
    document.pop("checksum", None)
    digest = hashlib.sha256(json.dumps(document, indent=1).encode()).hexdigest()
    document["checksum"] = digest
    return json.dumps(document, indent=1).encode()


@pytest.mark.parametrize("size_bytes", [9_000, 50_000])
async def test_a_copy_that_a_rotation_overtakes_is_wrapped_with_the_new_key(
    objects: HookedObjectStore, storage: RemoteStorage, ring: KeyRingFiles, size_bytes: int
) -> None:
    """A copy may take hours: the old key has been retired by then, as no manifest named it."""

    async def rotate(operation: str, key: str) -> None:
        if operation in ("create", "complete") and key.endswith(".log"):
            ring.put("b")
            ring.remove("a", active="b")

    objects.before = rotate
    segment = builders.segment(size_bytes=size_bytes)
    metadata = await copied(storage, segment)
    reader = opened(objects, ring)
    assert await joined(reader.fetch_log_segment(metadata, 0)) == segment.log
    assert await reader.fetch_index(metadata, IndexType.OFFSET) == segment.data.offset_index
    assert (await reader.describe_segment(metadata)).key_id == "b"
    assert not (await reader.rewrap_segment(metadata)).is_rewrapped


@pytest.mark.parametrize("is_ring_there", [True, False])
async def test_without_its_key_a_segment_names_the_key_and_stays_intact(
    objects: HookedObjectStore, storage: RemoteStorage, ring: KeyRingFiles, is_ring_there: bool
) -> None:
    segment = builders.segment()
    metadata = await copied(storage, segment)
    kept = (ring.path.parent / "a.key").read_bytes()
    ring.put("b")
    ring.remove("a", active="b")
    reader = opened(objects, ring if is_ring_there else None)
    for attempt in (
        joined(reader.fetch_log_segment(metadata, 0)),
        reader.fetch_index(metadata, IndexType.TIMESTAMP),
        reader.rewrap_segment(metadata),
        anext(aiter(reader.verify_segment(metadata))),
    ):
        with pytest.raises(PreconditionError, match="'a'") as raised:
            await attempt
        assert raised.value.reason is ErrorReason.ENCRYPTION_KEY_UNAVAILABLE
        assert raised.value.metadata["keyId"] == "a"
    assert (await reader.describe_segment(metadata)).key_id == "a"
    ring.put("a", kept)
    ring.activate("b")
    if is_ring_there:
        assert await joined(reader.fetch_log_segment(metadata, 0)) == segment.log
    assert await joined(opened(objects, ring).fetch_log_segment(metadata, 0)) == segment.log


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
async def test_any_changed_byte_is_found(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    ring: KeyRingFiles,
    tmp_path: Path,
    suffix: str,
) -> None:
    segment = builders.segment(size_bytes=9_000)
    metadata = await copied(storage, segment)
    path = stored_file(tmp_path, metadata, suffix)
    good = path.read_bytes()
    for position in range(0, len(good), 97):
        damaged = bytearray(good)
        damaged[position] ^= 0x15
        path.write_bytes(damaged)
        reader = opened(objects, ring)
        findings = [
            finding async for step in reader.verify_segment(metadata) for finding in step.findings
        ]
        assert findings, position
        if suffix != ".indexes":
            with pytest.raises(CorruptSegmentError):
                await joined(reader.fetch_log_segment(metadata, 0))


async def test_chunks_of_another_copy_of_the_same_log_do_not_open(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    """Also when whoever can write to the store makes every checksum fit."""
    one = builders.segment(size_bytes=9_000)
    other = builders.segment(one.log)
    metadata, other_metadata = await copied(storage, one), await copied(storage, other)
    for suffix in (".log", ".indexes"):
        theirs = stored_file(tmp_path, other_metadata, suffix).read_bytes()
        stored_file(tmp_path, metadata, suffix).write_bytes(theirs)
    with pytest.raises(CorruptSegmentError, match="cannot be opened"):
        await joined(storage.fetch_log_segment(metadata, 0))


async def test_two_processes_that_copy_one_id_at_once_agree(
    storage: RemoteStorage, objects: HookedObjectStore, ring: KeyRingFiles
) -> None:
    """Sealed bytes differ from copy to copy, so the later one must not replace the earlier one's."""
    other = opened(objects, ring)
    for size_bytes in (15_000, 90_000):
        segment = builders.segment(size_bytes=size_bytes)
        results = await asyncio.gather(
            *(rsm.copy_log_segment_data(segment.metadata, segment.data) for rsm in (storage, other))
        )
        assert results[0] == results[1]
        reader = opened(objects, ring)
        assert await joined(reader.fetch_log_segment(segment.metadata, 0)) == segment.log
    assert storage.writer.budget.used_bytes == other.writer.budget.used_bytes == 0


@pytest.mark.parametrize("size_bytes", [15_000, 90_000])
async def test_a_log_that_a_crashed_copy_left_is_not_overwritten(
    storage: RemoteStorage, objects: HookedObjectStore, tmp_path: Path, size_bytes: int
) -> None:
    segment = builders.segment(size_bytes=size_bytes)
    metadata = await copied(storage, segment)
    left = stored_file(tmp_path, metadata, ".log")
    stored_file(tmp_path, metadata, ".manifest").unlink()
    before = left.read_bytes()
    with pytest.raises(ConcurrentUpdateError, match="new segment id"):
        await copied(storage, segment)
    assert left.read_bytes() == before
    await storage.delete_log_segment_data(segment.metadata)
    assert [path for path in (tmp_path / "segments").rglob("*") if path.is_file()] == []
    metadata = await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log


@pytest.mark.parametrize("size_bytes", [15_000, 90_000])
async def test_a_copy_whose_answer_was_lost_knows_its_own_log(
    storage: RemoteStorage,
    objects: HookedObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    size_bytes: int,
) -> None:
    """A repeat of the request that made the object is refused, as the object is there."""
    create, complete = objects.create, HookedUpload.complete

    async def create_again(key: str, data: bytes, *, sha256: str | None = None) -> Written:
        return await create(key, data) and await create(key, data)

    async def complete_again(upload: HookedUpload) -> bool:
        assert await complete(upload)
        return False

    monkeypatch.setattr(objects, "create", create_again)
    monkeypatch.setattr(HookedUpload, "complete", complete_again)
    segment = builders.segment(size_bytes=size_bytes)
    metadata = await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log


async def test_a_deletion_by_another_process_wins_over_rewrapping(
    storage: RemoteStorage, objects: HookedObjectStore, ring: KeyRingFiles, tmp_path: Path
) -> None:
    segment = builders.segment()
    metadata = await copied(storage, segment)
    other = opened(objects, ring)
    ring.put("b")
    ring.activate("b")

    async def delete_first(operation: str, key: str) -> None:
        if operation == "replace" and key.endswith(".manifest"):
            objects.before = HookedObjectStore(objects).before
            await other.delete_log_segment_data(metadata)

    objects.before = delete_first
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.rewrap_segment(metadata)
    assert [path for path in (tmp_path / "segments").rglob("*") if path.is_file()] == []


async def test_segments_from_before_encryption_stay_readable_and_need_no_rewrapping(
    objects: HookedObjectStore, storage: RemoteStorage
) -> None:
    plain = RemoteStorage(objects, options=StorageOptions(), writer_version="1")
    segment = builders.segment()
    metadata = await copied(plain, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
    done = await storage.rewrap_segment(metadata)
    assert (done.previous_key_id, done.key_id, done.is_rewrapped) == (None, None, False)


async def test_codec_and_chunk_size_are_chosen_by_topic(objects: HookedObjectStore) -> None:
    topics = {
        "logs-*": TopicOptions(codec="zstd", chunk_size_bytes=2_000),
        "*": TopicOptions(chunk_size_bytes=8_000),
    }
    storage = RemoteStorage(objects, options=StorageOptions(topics=topics), writer_version="1")
    batch = builders.record_batch(0, 1, 0)
    for topic, codec, least_chunks in [("logs-web", "zstd", 9), ("orders", "none", 2)]:
        segment = builders.segment(
            builders.renumbered_log(20_000, batch, 100),
            partition=builders.topic_id_partition(topic),
        )
        metadata = await copied(storage, segment)
        described = await storage.describe_segment(metadata)
        assert (described.codec, described.chunk_count >= least_chunks) == (codec, True)
        assert (described.stored_bytes < len(segment.log) // 2) == (codec == "zstd")
        assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log


async def test_rewrapping_is_asked_for_over_the_wire(tmp_path: Path, ring: KeyRingFiles) -> None:
    settings = StorageSettings(
        backend=Backend.FILESYSTEM,
        filesystem=FilesystemSettings(root=tmp_path / "segments"),
        encryption=EncryptionSettings(key_ring_file=ring.path),
        grpc=GrpcServerSettings(drain_grace_s=0),
    )
    async with running_server(settings) as server:
        client = GrpcRemoteStorageManager()
        await client.configure({"endpoints": f"127.0.0.1:{server.port}"})
        segment = builders.segment()
        metadata = await copied(client, segment)
        ring.put("b")
        ring.activate("b")
        assert await client.rewrap_segment(metadata) == ("a", "b")
        assert (await client.describe_segment(metadata)).key_id == "b"
        ring.remove("a", active="b")
        assert await joined(client.fetch_log_segment(metadata, 0)) == segment.log
        await client.close()


async def test_the_manifest_says_how_the_segment_is_sealed(
    storage: RemoteStorage, tmp_path: Path
) -> None:
    metadata = await copied(storage, builders.segment())
    document = json.loads(stored_file(tmp_path, metadata, ".manifest").read_bytes())
    envelope = document["encryption"]
    assert envelope.pop("wrapped_key")
    assert envelope == {"cipher": "aes-256-gcm", "key_id": "a", "wrapping": "aes-256-kw"}


async def test_the_next_chunk_is_made_while_parts_go_up_and_the_budget_pays_for_it(
    storage: RemoteStorage, objects: HookedObjectStore
) -> None:
    """With room in the budget two chunks are at work beside the buffers; without, one at a time; memory is given back."""
    most_bytes = 0

    async def look(operation: str, key: str) -> None:
        nonlocal most_bytes
        most_bytes = max(most_bytes, storage.writer.budget.used_bytes)

    objects.before = look
    segments = [builders.segment(size_bytes=90_000, piece_bytes=3_000) for _ in range(8)]
    for segment in await asyncio.gather(*(copied(storage, each) for each in segments)):
        assert (await storage.describe_segment(segment)).chunk_count > 10
    assert most_bytes <= OPTIONS.upload_budget_bytes
    assert storage.writer.budget.used_bytes == 0
    assert storage.writer.budget.try_reserve(OPTIONS.ahead_bytes)
