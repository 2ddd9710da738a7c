"""Objects of failed copies go by age; segments, damaged ones too, and objects of others stay (SR-16)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import builders
import pytest
from aquifer_core.errors import ConcurrentUpdateError, DeadlineExceededError
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.app import leftover_sweeping
from aquifer_storage.domain.copy_deadline import copy_deadline
from aquifer_storage.domain.leftover_sweeper import LeftoverSweeper
from aquifer_storage.domain.manifest_codec import LARGEST_MARK_BYTES, encode_abandoned
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import ObjectInfo, ObjectStore
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.domain.work_limits import WorkLimits
from aquifer_storage.settings import CopySettings, StorageSettings
from fixtures.hooked_object_store import HookedObjectStore
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually
from pydantic import ValidationError

HOUR_S = 3600.0
KEYS = ObjectKeys("p/")
MARK = encode_abandoned("copy failed")


class NeverEnding:
    """A log that stops coming."""

    size_bytes = 1000

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


class WithoutManifests(HookedObjectStore):
    """A store whose listings are behind."""

    async def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for found in super().list_objects(prefix):
            if not found.key.endswith(".manifest"):
                yield found


class StoreClockAhead:
    """The store's clock as it will show later."""

    def __init__(self, store: S3ObjectStore | FilesystemObjectStore) -> None:
        self._store = store
        self.ahead_s = 0.0
        self.is_told = True

    async def store_time_ms(self) -> int | None:
        now_ms = await self._store.store_time_ms()
        assert now_ms is not None
        return now_ms + int(self.ahead_s * 1000) if self.is_told else None


@pytest.fixture(params=["s3", "filesystem"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[S3ObjectStore | FilesystemObjectStore]:
    made: S3ObjectStore | FilesystemObjectStore
    if request.param == "filesystem":
        made = FilesystemObjectStore(tmp_path)
    else:
        server: S3Endpoint = request.getfixturevalue("s3_server")
        made = S3ObjectStore(
            S3Options(
                endpoint=server.endpoint,
                bucket=request.getfixturevalue("bucket"),
                access_key=server.access_key,
                secret_key=server.secret_key,
            )
        )
    yield made
    await made.close()


@pytest.fixture
def clock(store: S3ObjectStore | FilesystemObjectStore) -> StoreClockAhead:
    return StoreClockAhead(store)


@pytest.fixture
def sweeper(store: ObjectStore, clock: StoreClockAhead) -> LeftoverSweeper:
    return LeftoverSweeper(store, clock, KEYS, older_than_s=HOUR_S)


async def keys_of(store: ObjectStore) -> list[str]:
    return [listed.key async for listed in store.list_objects("")]


def storage_over(store: ObjectStore, options: StorageOptions | None = None) -> RemoteStorage:
    return RemoteStorage(
        store,
        options=options or StorageOptions(),
        writer_version="test",
        key_prefix=KEYS.prefix,
    )


@pytest.mark.parametrize(
    "left",
    [
        ("log",),
        ("indexes",),
        ("log", "indexes"),
        ("manifest",),
        ("log", "manifest"),
        ("log", "indexes", "manifest"),
    ],
    ids="+".join,
)
async def test_what_a_failed_copy_left_goes_when_it_is_older_than_any_copy(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper, left: tuple[str, ...]
) -> None:
    """In the manifest's place there is at most the mark of what cleaned up before."""
    keys = KEYS.of(builders.segment().metadata)
    for part in left:
        await store.put(getattr(keys, part), MARK if part == "manifest" else b"bytes")
    clock.ahead_s = HOUR_S - 600
    assert await sweeper.sweep() == 0
    clock.ahead_s = HOUR_S + 600
    assert await sweeper.sweep() == len(left)
    if "manifest" not in left:
        assert await keys_of(store) == [keys.manifest]
        assert await sweeper.sweep() == 1, "the mark is as old by this clock"
    assert await keys_of(store) == []
    assert await sweeper.sweep() == 0


async def test_a_mark_stays_as_long_as_a_copy_may_take(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper
) -> None:
    """What is under way in vain must find it: its manifest is refused, whenever it comes."""
    segment = builders.segment()
    keys = KEYS.of(segment.metadata)
    await store.put(keys.log, b"bytes")
    clock.ahead_s = HOUR_S + 600
    assert await sweeper.sweep() == 1
    clock.ahead_s = HOUR_S - 600
    assert await sweeper.sweep() == 0
    with pytest.raises(ConcurrentUpdateError):
        await storage_over(store).copy_log_segment_data(segment.metadata, segment.data)
    assert await keys_of(store) == [keys.manifest]


async def test_a_manifest_that_the_listing_did_not_show_keeps_its_segment(
    store: ObjectStore, clock: StoreClockAhead
) -> None:
    segment = builders.segment()
    await storage_over(store).copy_log_segment_data(segment.metadata, segment.data)
    before = await keys_of(store)
    clock.ahead_s = 100 * HOUR_S
    sweeper = LeftoverSweeper(WithoutManifests(store), clock, KEYS, older_than_s=HOUR_S)
    assert await sweeper.sweep() == 0
    assert await keys_of(store) == before


@pytest.mark.parametrize("missing", [None, "log", "indexes"])
async def test_a_segment_stays_even_when_objects_of_it_are_missing(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper, missing: str | None
) -> None:
    """Damage is for the scrub to report; its manifest is the evidence."""
    segment = builders.segment()
    await storage_over(store).copy_log_segment_data(segment.metadata, segment.data)
    if missing is not None:
        await store.delete([getattr(KEYS.of(segment.metadata), missing)])
    before = await keys_of(store)
    clock.ahead_s = 100 * HOUR_S
    assert await sweeper.sweep() == 0
    assert await keys_of(store) == before


@pytest.mark.parametrize("manifest", [b"", b"{", b'{"format_version": 99}'], ids=repr)
async def test_what_is_not_understood_stays_and_keeps_nothing_else_from_being_swept(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper, manifest: bytes
) -> None:
    strange, left = (KEYS.of(builders.segment().metadata) for _ in range(2))
    await store.put(strange.log, b"bytes")
    await store.put(strange.manifest, manifest)
    await store.put(left.manifest, MARK)
    clock.ahead_s = 100 * HOUR_S
    assert await sweeper.sweep() == 1
    assert await keys_of(store) == [strange.log, strange.manifest]


async def test_objects_of_others_in_the_store_stay(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper
) -> None:
    log = KEYS.of(builders.segment().metadata).log
    others = ["p/backup/2024.log", "q/" + log.removeprefix("p/"), log + "x", "p/notes", "other"]
    for key in others:
        await store.put(key, b"bytes")
    clock.ahead_s = 100 * HOUR_S
    assert await sweeper.sweep() == 0
    assert await keys_of(store) == sorted(others)


async def test_nothing_is_swept_while_the_store_does_not_tell_its_time(
    store: ObjectStore, clock: StoreClockAhead, sweeper: LeftoverSweeper
) -> None:
    """Our own clock may be years ahead."""
    await store.put(KEYS.of(builders.segment().metadata).log, b"bytes")
    clock.ahead_s = 100 * HOUR_S
    clock.is_told = False
    assert await sweeper.sweep() == 0
    clock.is_told = True
    assert await sweeper.sweep() == 1


async def test_the_service_sweeps_by_itself(
    store: S3ObjectStore | FilesystemObjectStore,
) -> None:
    """Marks included; an object that appears while the service runs goes as well."""
    settings = StorageSettings(
        key_prefix=KEYS.prefix,
        copying=CopySettings(
            timeout_s=0.0005, sweep_objects_after_s=0.001, sweep_objects_interval_s=0.2
        ),
    )

    async def nothing_is_left() -> bool:
        return not await keys_of(store)

    async with leftover_sweeping(settings, store, WorkLimits()):
        for _ in range(2):
            await store.put(KEYS.of(builders.segment().metadata).log, b"bytes")
            await eventually(nothing_is_left, timeout_s=60)


async def test_no_copy_lasts_longer_than_the_ages_allow(store: ObjectStore) -> None:
    """Its caller may have set no deadline at all."""
    source = NeverEnding()
    segment = builders.segment().with_data(log_segment=source)
    segment = segment.with_metadata(segment_size_bytes=source.size_bytes)
    storage = storage_over(store, StorageOptions(copy_timeout_s=0.2))
    with pytest.raises(DeadlineExceededError, match=r"the copy took over 0\.2 s"):
        await storage.copy_log_segment_data(segment.metadata, segment.data)
    assert await keys_of(store) == []


async def test_a_copy_that_was_stopped_in_its_tracks_does_not_succeed_later() -> None:
    """A process may be stopped for hours before it sees its last answer; what it wrote may have been swept."""
    with pytest.raises(DeadlineExceededError):
        async with copy_deadline(0.01):
            threading.Event().wait(0.02)  # nothing else runs meanwhile


def test_an_age_below_twice_the_longest_copy_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least twice"):
        CopySettings(timeout_s=10, sweep_objects_after_s=19)
    assert CopySettings(timeout_s=10, sweep_objects_after_s=20).timeout_s == 10
    assert len(MARK) < LARGEST_MARK_BYTES
