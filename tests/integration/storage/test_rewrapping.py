"""Rewrapping beside deletions and other rewrapping, on a store with conditional writes and on one without."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.faulty_s3 import Fault, FaultyS3
from fixtures.key_rings import KeyRingFiles, new_key_ring
from fixtures.object_store import S3Endpoint

SEGMENT = builders.segment()
WITHOUT_CONDITIONS = Fault(status=501, code="NotImplemented", refused_header="If-Match")


@pytest.fixture
def ring(tmp_path: Path) -> KeyRingFiles:
    return new_key_ring(tmp_path, "a")


@pytest.fixture
def opened(
    behind_proxy: Callable[..., S3ObjectStore], ring: KeyRingFiles
) -> Callable[[], RemoteStorage]:
    """Opens a process over the bucket behind the proxy."""
    return lambda: RemoteStorage(
        behind_proxy(retry_timeout_s=1),
        options=StorageOptions(),
        writer_version="1",
        key_ring=FileKeyRing(ring.path),
    )


@pytest.fixture
async def metadata(
    opened: Callable[[], RemoteStorage], ring: KeyRingFiles
) -> RemoteLogSegmentMetadata:
    """A segment sealed with a key that is not active any more."""
    metadata = await copied(opened(), SEGMENT)
    ring.put("b")
    ring.activate("b")
    return metadata


@pytest.fixture
def delete_before_put(
    faulty_s3: FaultyS3, s3_server: S3Endpoint, bucket: str, metadata: RemoteLogSegmentMetadata
) -> None:
    """Another process deletes the segment just before the next write reaches the store."""
    client = s3_server.client()

    def delete(operation: str) -> None:
        if operation == "put_object":
            faulty_s3.on_request = lambda operation: None
            for key in ObjectKeys().of(metadata).all:
                client.remove_object(bucket, key)

    faulty_s3.on_request = delete


async def keys_left(objects: S3ObjectStore) -> list[str]:
    return [found.key async for found in objects.list_objects("")]


@pytest.mark.usefixtures("delete_before_put")
async def test_a_manifest_that_was_deleted_meanwhile_is_not_written_again(
    opened: Callable[[], RemoteStorage],
    behind_proxy: Callable[..., S3ObjectStore],
    faulty_s3: FaultyS3,
    metadata: RemoteLogSegmentMetadata,
) -> None:
    """Also when the process cannot look what became of the log, or does not live long enough."""
    faulty_s3.fail("head_object", fault=Fault(status=503))
    with pytest.raises(RemoteResourceNotFoundError):
        await opened().rewrap_segment(metadata)
    faulty_s3.heal()
    assert await keys_left(behind_proxy()) == []


@pytest.mark.usefixtures("delete_before_put")
async def test_without_conditions_a_manifest_that_was_deleted_meanwhile_is_withdrawn(
    opened: Callable[[], RemoteStorage],
    behind_proxy: Callable[..., S3ObjectStore],
    faulty_s3: FaultyS3,
    metadata: RemoteLogSegmentMetadata,
) -> None:
    faulty_s3.fail(fault=WITHOUT_CONDITIONS)
    with pytest.raises(RemoteResourceNotFoundError):
        await opened().rewrap_segment(metadata)
    assert await keys_left(behind_proxy()) == []


@pytest.mark.parametrize(
    "fault", [Fault(lost=True), Fault(status=503), WITHOUT_CONDITIONS], ids=repr
)
async def test_rewrapping_gets_done_whatever_the_store_answers_first(
    opened: Callable[[], RemoteStorage],
    faulty_s3: FaultyS3,
    metadata: RemoteLogSegmentMetadata,
    fault: Fault,
) -> None:
    faulty_s3.fail("put_object", fault=fault, times=1)
    await opened().rewrap_segment(metadata)
    reader = opened()
    assert (await reader.describe_segment(metadata)).key_id == "b"
    assert await joined(reader.fetch_log_segment(metadata, 0)) == SEGMENT.log


async def test_two_processes_rewrap_at_once(
    opened: Callable[[], RemoteStorage], metadata: RemoteLogSegmentMetadata
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(opened().rewrap_segment(metadata)) for _ in range(4)]
    assert any(task.result().is_rewrapped for task in tasks)
    assert {task.result().key_id for task in tasks} == {"b"}
    assert await joined(opened().fetch_log_segment(metadata, 0)) == SEGMENT.log
