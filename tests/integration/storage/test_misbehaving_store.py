"""A real S3 server that refuses, hangs, cuts, lies and forgets: survived, or told truthfully (SR-36, SR-37)."""

import asyncio
from collections.abc import Callable

import builders
import pytest
from aquifer_core.errors import (
    AquiferError,
    CorruptSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.faulty_s3 import Fault, FaultyS3

OPTIONS = StorageOptions(
    chunk_size_bytes=256 * 1024,
    part_size_bytes=5 * MIB,
    single_put_max_bytes=0,
    upload_budget_bytes=20 * MIB,
    manifest_bundle_max_bytes=0,
    read_ahead_bytes=0,
    read_timeout_s=30,
)
LOG = builders.renumbered_log(6 * MIB, builders.record_batch(100, 16, 8_000), 100)

TRANSIENT = {
    "503": Fault(status=503),
    "429": Fault(status=429, code="TooManyRequests"),
    "500": Fault(status=500, code="InternalError"),
    "hang": Fault(hang=True),
    "lost": Fault(lost=True),
}


@pytest.fixture
def store(behind_proxy: Callable[..., S3ObjectStore]) -> S3ObjectStore:
    """The real store behind the proxy, with short times."""
    return behind_proxy(read_timeout_s=2, retry_timeout_s=6)


@pytest.fixture
def storage(store: S3ObjectStore) -> RemoteStorage:
    """Segments in that store."""
    return RemoteStorage(store, options=OPTIONS, writer_version="1")


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
@pytest.mark.parametrize(
    "operation",
    [
        "create_upload",
        "upload_part",
        "complete_upload",
        "put_object",
        "head_object",
        "get_object",
        "delete_object",
        "list_uploads",
    ],
)
async def test_a_segment_lives_through_a_transient_fault_of_every_operation(
    storage: RemoteStorage,
    store: S3ObjectStore,
    faulty_s3: FaultyS3,
    operation: str,
    fault: Fault,
) -> None:
    """T48; a lost answer of an upload's end, a put or a deletion is as good as an answer."""
    faulty_s3.fail(operation, fault=fault, times=1)
    segment = builders.segment(LOG)
    metadata = await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG
    await storage.delete_log_segment_data(metadata)
    assert [found.key async for found in store.list_objects("")] == []
    assert faulty_s3.requests[operation] == store.totals.requests[operation] > 1
    await storage.close()


async def test_an_upload_that_ends_with_200_and_an_error_is_ended_again(
    storage: RemoteStorage, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail("complete_upload", fault=Fault(error_in_200=True), times=1)
    metadata = await copied(storage, builders.segment(LOG))
    assert faulty_s3.requests["complete_upload"] == 2
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG


@pytest.mark.parametrize("cut_at", [0, 1, 300_000])
async def test_a_body_that_is_cut_is_read_on(
    storage: RemoteStorage, faulty_s3: FaultyS3, cut_at: int
) -> None:
    metadata = await copied(storage, builders.segment(LOG))
    faulty_s3.fail("get_object", key_part=".log", fault=Fault(cut_at=cut_at), times=2)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG


async def test_a_slow_body_is_read_to_its_end(store: S3ObjectStore, faulty_s3: FaultyS3) -> None:
    """What bounds a body is silence, not its length."""
    await store.put("key", LOG)
    faulty_s3.fail("get_object", fault=Fault(slow_s=0.1))
    assert await store.get("key") == LOG
    assert store.totals.requests["get_object"] == 1


async def test_a_body_that_is_silent_too_long_is_asked_for_again(
    store: S3ObjectStore, faulty_s3: FaultyS3
) -> None:
    await store.put("key", LOG)
    faulty_s3.fail("get_object", fault=Fault(slow_s=5), times=1)
    assert await store.get("key") == LOG
    assert store.totals.requests["get_object"] == 2


@pytest.mark.parametrize(
    "fault", [Fault(wrong_bytes_at=1_000), Fault(truncated_to=1_000)], ids=["wrong", "truncated"]
)
@pytest.mark.parametrize("suffix", [".log", ".indexes", ".manifest"])
async def test_what_the_store_falsifies_is_neither_served_nor_kept(
    storage: RemoteStorage, faulty_s3: FaultyS3, suffix: str, fault: Fault
) -> None:
    """Damage is told while it lasts, with the segment's id, and forgotten with it."""
    segment = builders.segment(LOG)
    await storage.copy_log_segment_data(segment.metadata, segment.data)
    at = 100 if suffix == ".manifest" else 1_000
    spoilt = (
        Fault(wrong_bytes_at=at) if fault.wrong_bytes_at is not None else Fault(truncated_to=at)
    )
    faulty_s3.fail("get_object", key_part=suffix, fault=spoilt)
    for _ in range(2):
        with pytest.raises(CorruptSegmentError):
            await joined(storage.fetch_log_segment(segment.metadata, 0))
    faulty_s3.heal()
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == LOG


async def test_a_store_that_refuses_for_longer_than_a_request_tries_is_told_and_comes_back(
    storage: RemoteStorage, faulty_s3: FaultyS3
) -> None:
    metadata = await copied(storage, builders.segment(LOG))
    faulty_s3.fail(fault=Fault(status=503))
    outcomes = await asyncio.gather(
        *(joined(storage.fetch_log_segment(metadata, at)) for at in range(0, 6 * MIB, MIB)),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, RemoteStorageUnavailableError) for outcome in outcomes)
    faulty_s3.heal()
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG


async def test_a_lagging_listing_hides_and_shows_but_does_not_harm(
    storage: RemoteStorage, faulty_s3: FaultyS3
) -> None:
    """What is listed and gone is skipped; what is there and not listed yet is still read and deleted."""
    first, second = builders.segment(), builders.segment()
    await storage.copy_log_segment_data(first.metadata, first.data)
    assert len([found async for found in storage.list_stored_segments()]) == 1
    faulty_s3.fail("list_objects", fault=Fault(stale=True))
    await storage.delete_log_segment_data(first.metadata)
    await storage.copy_log_segment_data(second.metadata, second.data)
    assert [found async for found in storage.list_stored_segments()] == []
    assert await joined(storage.fetch_log_segment(second.metadata, 0)) == second.log
    await storage.delete_log_segment_data(second.metadata)
    faulty_s3.heal()
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.describe_segment(second.metadata)


async def test_a_conditional_write_whose_answer_was_lost_is_still_the_writers(
    storage: RemoteStorage, faulty_s3: FaultyS3
) -> None:
    """The repeat meets the manifest that the first attempt has written, and the copy succeeds."""
    segment = builders.segment()
    faulty_s3.fail("put_object", key_part=".manifest", fault=Fault(lost=True), times=1)
    result = await storage.copy_log_segment_data(segment.metadata, segment.data)
    assert await storage.copy_log_segment_data(segment.metadata, segment.data) == result
    assert await joined(storage.fetch_log_segment(segment.metadata, 0)) == segment.log


async def test_a_copy_gives_up_in_time_and_leaves_nothing_when_it_can_be_deleted(
    storage: RemoteStorage, store: S3ObjectStore, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail("put_object", key_part=".manifest", fault=Fault(status=503))
    segment = builders.segment(LOG)
    with pytest.raises(AquiferError):
        await copied(storage, segment)
    faulty_s3.heal()
    await storage.delete_log_segment_data(segment.metadata)
    assert [found.key async for found in store.list_objects("")] == []
