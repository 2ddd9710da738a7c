"""What is damaged on its way to the store is never taken for copied, whatever checksums the store knows."""

from collections.abc import Callable

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.formats.record_batch import complete_batches_size
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.domain.ports import Written
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.store_check import Outcome, StoreCheck
from aquifer_storage.domain.store_checks import STORE_CHECKS
from contract.remote_storage_manager import copied, joined
from fixtures.faulty_s3 import Fault, FaultyS3

OPTIONS = StorageOptions(
    part_size_bytes=5 * MIB, single_put_max_bytes=0, upload_budget_bytes=20 * MIB
)
LOG = builders.renumbered_log(11 * MIB, builders.record_batch(0, 16, 8_000), 0)
DAMAGED = Fault(sent_wrong_at=5)
SILENT = Fault(without_checksums=True)


def whole_batches(log: bytes) -> bytes:
    """As many batches as are there in full."""
    return log[: complete_batches_size(log)]


@pytest.fixture(params=[True, False], ids=["signed", "unsigned"])
def store(
    request: pytest.FixtureRequest, behind_proxy: Callable[..., S3ObjectStore]
) -> S3ObjectStore:
    return behind_proxy(sign_payloads=request.param, retry_timeout_s=2)


@pytest.fixture(params=[True, False], ids=["signed", "unsigned"])
def patient(
    request: pytest.FixtureRequest, behind_proxy: Callable[..., S3ObjectStore]
) -> S3ObjectStore:
    """Sends again for as long as it takes to send large parts on a busy machine."""
    return behind_proxy(sign_payloads=request.param, retry_timeout_s=60)


@pytest.fixture(params=["crc32c", "md5"])
def knowing(request: pytest.FixtureRequest, faulty_s3: FaultyS3) -> str:
    """A store that confirms checksums, and one that keeps silent about those it does not know."""
    if request.param == "md5":
        faulty_s3.fail("put_object", "upload_part", fault=SILENT, times=1)
    return str(request.param)


@pytest.mark.parametrize("operation", ["upload_part", "put_object"])
async def test_a_copy_that_is_damaged_on_its_way_is_sent_again(
    patient: S3ObjectStore, faulty_s3: FaultyS3, knowing: str, operation: str
) -> None:
    await patient.put("first", b"tells what the store knows")
    faulty_s3.fail(operation, fault=DAMAGED, times=3)
    storage = RemoteStorage(patient, options=OPTIONS, writer_version="1")
    segment = builders.segment(LOG, start_offset=0)
    metadata = await copied(storage, segment)
    assert await joined(storage.fetch_log_segment(metadata, 0)) == LOG
    findings = [each.findings async for each in storage.verify_segment(metadata)]
    assert not any(findings)


async def test_a_small_copy_that_is_damaged_on_its_way_is_sent_again(
    patient: S3ObjectStore, faulty_s3: FaultyS3, knowing: str
) -> None:
    """Log and manifest are written on the condition that there is none, with whatever checksum the store knows."""
    storage = RemoteStorage(patient, options=StorageOptions(), writer_version="1")
    for log in (LOG[: len(LOG) // 11], LOG[: len(LOG) // 2]):
        segment = builders.segment(whole_batches(log), start_offset=0)
        faulty_s3.fail("put_object", fault=DAMAGED, times=2)
        metadata = await copied(storage, segment)
        assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
        findings = [each.findings async for each in storage.verify_segment(metadata)]
        assert not any(findings)
    written = await patient.create("another", b"0123456789")
    assert (written is Written.CONFIRMED) == (knowing == "crc32c")


async def test_a_store_that_refuses_a_checksum_it_does_not_know_creates_with_another(
    store: S3ObjectStore, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail("put_object", fault=Fault(status=501, code="NotImplemented"), times=1)
    assert await store.create("key", b"0123456789") is Written.YES
    assert await store.create("key", b"9876543210") is Written.NOT
    assert await store.get("key") == b"0123456789"


async def test_an_object_that_is_always_damaged_is_not_written(
    store: S3ObjectStore, faulty_s3: FaultyS3, knowing: str
) -> None:
    await store.put("first", b"tells what the store knows")
    faulty_s3.fail("put_object", fault=DAMAGED)
    with pytest.raises(RemoteStorageUnavailableError, match="did not match"):
        await store.put("damaged", b"0123456789")
    with pytest.raises(RemoteStorageUnavailableError, match="did not match"):
        await store.create("damaged", b"0123456789")
    faulty_s3.heal()
    assert await store.size_bytes("damaged") is None


async def test_what_the_store_confirms_must_be_what_was_sent(
    store: S3ObjectStore, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail("put_object", fault=Fault(wrong_checksums=True), times=1)
    await store.put("key", b"0123456789")
    assert faulty_s3.requests["put_object"] == 2
    faulty_s3.fail("put_object", fault=Fault(wrong_checksums=True))
    with pytest.raises(RemoteStorageUnavailableError, match="AAAAAA==") as raised:
        await store.put("key", b"0123456789")
    assert raised.value.retry_after_ms


NOT_CONFIRMED = [
    (Fault(wrong_checksums=True), True),
    (Fault(wrong_checksums=True), False),
    (SILENT, True),
]


@pytest.mark.parametrize(("fault", "is_proven"), NOT_CONFIRMED)
async def test_a_conditional_write_that_is_not_confirmed_is_left_to_be_looked_at(
    patient: S3ObjectStore, faulty_s3: FaultyS3, fault: Fault, is_proven: bool
) -> None:
    """It cannot be repeated: the object is there, whoever made it and whatever it is."""
    if is_proven:
        assert await patient.create("first", b"tells what the store knows")
    faulty_s3.fail("put_object", fault=fault, times=1)
    assert not await patient.create("key", b"0123456789")


@pytest.mark.parametrize(("fault", "is_proven"), NOT_CONFIRMED)
@pytest.mark.parametrize("suffix", [".log", ".manifest"])
async def test_a_copy_writes_a_log_over_that_is_not_confirmed_and_reads_such_a_manifest_back(
    patient: S3ObjectStore, faulty_s3: FaultyS3, suffix: str, fault: Fault, is_proven: bool
) -> None:
    if is_proven:
        await patient.create("first", b"tells what the store knows")
    storage = RemoteStorage(patient, options=StorageOptions(), writer_version="1")
    faulty_s3.fail("put_object", key_part=suffix, fault=fault, times=1)
    segment = builders.segment()
    before = faulty_s3.requests.copy()
    metadata = await copied(storage, segment)
    asked = faulty_s3.requests - before
    assert asked["put_object"] == (4 if suffix == ".log" else 3)
    assert asked["get_object"] == 1
    assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log


@pytest.mark.parametrize("operation", ["put_object", "upload_part", "create_upload"])
async def test_a_store_that_refuses_checksums_it_does_not_know_gets_others(
    store: S3ObjectStore, faulty_s3: FaultyS3, operation: str
) -> None:
    faulty_s3.fail(operation, fault=Fault(status=501, code="NotImplemented"), times=1)
    data = [bytes([number]) * (5 * MIB) for number in (1, 2)]
    await store.put("small", data[0])
    upload = await store.start_upload("large", 5 * MIB)
    for number, part in enumerate(data, start=1):
        await upload.put_part(number, part)
    assert await upload.complete()
    assert await store.get("small") == data[0]
    assert await store.get("large") == b"".join(data)
    faulty_s3.fail("put_object", fault=DAMAGED)
    with pytest.raises(RemoteStorageUnavailableError, match="did not match"):
        await store.put("damaged", b"0123456789")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Fault(status=200), "a body that does not match its checksum is stored"),
        (Fault(status=403, code="AccessDenied"), "AccessDenied"),
    ],
)
async def test_the_check_takes_only_a_refusal_of_the_checksum_for_one(
    store: S3ObjectStore, faulty_s3: FaultyS3, answer: Fault, text: str
) -> None:
    faulty_s3.fail("put_object", fault=answer, key_part="damaged-bodies/damaged")
    check = StoreCheck(store, store, STORE_CHECKS, clock=SystemClock())
    (result,) = [each async for each in check.run() if each.name == "damaged-bodies"]
    assert result.outcome is Outcome.DEGRADED
    assert text in result.message
