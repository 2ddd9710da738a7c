"""What a store lacks is found and named, on every kind of store (T22)."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from aquifer_core.clock import SystemClock
from aquifer_core.formats.checksum import Buffer
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.domain.ports import ObjectInfo, ObjectUpload, Written
from aquifer_storage.domain.store_check import FOLDER, CheckResult, Outcome, StoreCheck
from aquifer_storage.domain.store_checks import STORE_CHECKS
from fixtures.faulty_s3 import Fault, FaultyS3
from fixtures.hooked_object_store import HookedObjectStore, HookedUpload

NAMES = ["reachable", *(check.name for check in STORE_CHECKS), "clean-up"]
HOUR_MS = 3_600_000


class SkewedClock(SystemClock):
    """A clock that is wrong."""

    skew_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


@pytest.fixture
def clock() -> SkewedClock:
    return SkewedClock()


@pytest.fixture
def s3(behind_proxy: Callable[..., S3ObjectStore]) -> S3ObjectStore:
    """The real store behind a proxy that may misbehave."""
    return behind_proxy(retry_timeout_s=0.2)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[FilesystemObjectStore]:
    store = FilesystemObjectStore(tmp_path / "store")
    yield store
    await store.close()


@pytest.fixture(params=["s3", "filesystem"])
def store(
    request: pytest.FixtureRequest, s3: S3ObjectStore, files: FilesystemObjectStore
) -> S3ObjectStore | FilesystemObjectStore:
    return s3 if request.param == "s3" else files


async def checked(
    store: S3ObjectStore | FilesystemObjectStore, clock: SkewedClock
) -> list[CheckResult]:
    check = StoreCheck(store, store, STORE_CHECKS, clock=clock, key_prefix="p/", deadline_s=20)
    return [result async for result in check.run()]


async def test_checks_that_are_given_up_leave_nothing(
    files: FilesystemObjectStore, clock: SkewedClock
) -> None:
    check = StoreCheck(files, files, STORE_CHECKS, clock=clock, key_prefix="p/")
    async with aclosing(check.run()) as results:
        async for result in results:
            if result.name == "checksums":
                assert [found async for found in files.list_objects("")]
                break
    assert [found async for found in files.list_objects("")] == []


def outcomes(results: Sequence[CheckResult], outcome: Outcome) -> list[str]:
    return [result.name for result in results if result.outcome is outcome]


async def test_a_store_that_does_everything_passes_and_is_left_as_it_was(
    store: S3ObjectStore | FilesystemObjectStore, clock: SkewedClock
) -> None:
    await store.put("p/kept", b"1")
    results = await checked(store, clock)
    assert outcomes(results, Outcome.OK) == NAMES, results
    assert [(each.number, each.total) for each in results] == [
        (number, len(NAMES)) for number in range(1, len(NAMES) + 1)
    ]
    assert [found.key async for found in store.list_objects("")] == ["p/kept"]


async def test_what_an_earlier_check_left_behind_goes_and_a_check_at_the_same_time_stays(
    store: S3ObjectStore | FilesystemObjectStore, clock: SkewedClock
) -> None:
    now_ms = clock.now_ms()
    crashed, running = (f"p/{FOLDER}{now_ms - ago_ms}-x/o" for ago_ms in (2 * HOUR_MS, 1_000))
    await store.put(crashed, b"1")
    await store.put(running, b"1")
    await checked(store, clock)
    assert [found.key async for found in store.list_objects("")] == [running]


@pytest.mark.parametrize(("skew_ms", "text"), [(60_000, "60"), (-2_000_000, "ahead")])
async def test_a_wrong_clock_is_told(
    files: FilesystemObjectStore, clock: SkewedClock, skew_ms: int, text: str
) -> None:
    clock.skew_ms = skew_ms
    (result,) = [each for each in await checked(files, clock) if each.name == "clock"]
    assert result.outcome is Outcome.DEGRADED
    assert text in result.message


async def test_a_store_that_is_not_there_ends_the_checks(
    s3: S3ObjectStore, clock: SkewedClock, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail(fault=Fault(status=503))
    (result,) = await checked(s3, clock)
    assert (result.name, result.outcome) == ("reachable", Outcome.FAILED)
    assert "503" in result.message


FAULTS = {
    "wrong bytes": ("get_object", Fault(wrong_bytes_at=0), "checksums"),
    "bodies cut short": ("get_object", Fault(truncated_to=0), "ranged-reads"),
    "no multipart": (
        "create_upload",
        Fault(status=501, code="NotImplemented"),
        "multipart",
    ),
    "403 for what is missing": (
        "head_object",
        Fault(status=403, code="AccessDenied"),
        "missing-objects",
    ),
    "no listing": ("list_objects", Fault(status=500, code="InternalError"), "listing"),
    "no deletion": ("delete_object", Fault(status=501, code="NotImplemented"), "deletion"),
}


@pytest.mark.parametrize("given", FAULTS.values(), ids=FAULTS.keys())
async def test_a_store_that_cannot_be_used_fails_by_name(
    s3: S3ObjectStore, clock: SkewedClock, faulty_s3: FaultyS3, given: tuple[str, Fault, str]
) -> None:
    operation, fault, name = given
    faulty_s3.fail(operation, fault=fault, key_part=f"/{name}/")
    results = await checked(s3, clock)
    failed = [each for each in outcomes(results, Outcome.FAILED) if each != "clean-up"]
    assert failed == [name], results


async def test_a_store_without_upload_listing_will_do(
    s3: S3ObjectStore, clock: SkewedClock, faulty_s3: FaultyS3
) -> None:
    faulty_s3.fail("list_uploads", fault=Fault(status=501, code="NotImplemented"))
    results = await checked(s3, clock)
    assert outcomes(results, Outcome.DEGRADED) == ["upload-listing"]
    assert outcomes(results, Outcome.FAILED) == []


class CarelessUpload(HookedUpload):
    """Replaces what is there."""

    async def complete(self) -> bool:
        await self._store.delete([self._key])
        return await super().complete()


class Careless(FilesystemObjectStore):
    """Knows no conditions, as some stores."""

    async def create(self, key: str, data: Buffer, *, sha256: str | None = None) -> Written:
        return await self.put(key, data)

    async def replace(self, key: str, data: Buffer, *, found: bytes) -> Written:
        return await self.put(key, data)

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        upload = await super().start_upload(key, part_size_bytes)
        return CarelessUpload(HookedObjectStore(self), key, upload)


async def test_a_store_that_ignores_conditions_will_do(tmp_path: Path, clock: SkewedClock) -> None:
    store = Careless(tmp_path)
    results = await checked(store, clock)
    conditions = ["conditional-put", "conditional-upload", "conditional-replace"]
    assert outcomes(results, Outcome.DEGRADED) == conditions
    assert outcomes(results, Outcome.FAILED) == []
    await store.close()


class Lagging(FilesystemObjectStore):
    """Lists what was there a write ago, and shows parts too early."""

    shown: tuple[ObjectInfo, ...] = ()

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        now = tuple([found async for found in super().list_objects(prefix)])
        before, self.shown = self.shown, now
        for found in before:
            yield found

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        await self.put(key, b"early")
        return await super().start_upload(key, part_size_bytes)


async def test_a_store_that_lags_fails(tmp_path: Path, clock: SkewedClock) -> None:
    store = Lagging(tmp_path)
    failed = outcomes(await checked(store, clock), Outcome.FAILED)
    assert {"consistency", "listing", "multipart", "multipart-abort"} <= set(failed)
    await store.close()
