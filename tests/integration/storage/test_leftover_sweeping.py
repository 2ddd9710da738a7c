"""Objects of failed copies go by age; segments, damaged ones too, and objects of others stay (SR-16)."""

from collections.abc import AsyncIterator
from pathlib import Path

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.app import leftover_sweeping
from aquifer_storage.domain.leftover_sweeper import LeftoverSweeper
from aquifer_storage.domain.manifest import encode_abandoned
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.ports import ObjectStore
from aquifer_storage.domain.remote_storage import RemoteStorage
from aquifer_storage.settings import CopySettings, StorageSettings
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually

HOUR_S = 3600.0
KEYS = ObjectKeys("p/")
CLAIM = encode_abandoned("copy failed")


class ClockAhead(SystemClock):
    """A clock that shows later."""

    ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)


@pytest.fixture(params=["s3", "filesystem"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
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
def clock() -> ClockAhead:
    return ClockAhead()


@pytest.fixture
def sweeper(store: ObjectStore, clock: ClockAhead) -> LeftoverSweeper:
    return LeftoverSweeper(store, KEYS, older_than_s=HOUR_S, clock=clock)


async def keys_of(store: ObjectStore) -> list[str]:
    return [listed.key async for listed in store.list_objects("")]


@pytest.mark.parametrize(
    "left",
    [
        ("log",),
        ("log", "indexes"),
        ("manifest",),
        ("log", "manifest"),
        ("log", "indexes", "manifest"),
    ],
    ids="+".join,
)
async def test_what_a_failed_copy_left_goes_when_it_is_older_than_any_copy(
    store: ObjectStore, clock: ClockAhead, sweeper: LeftoverSweeper, left: tuple[str, ...]
) -> None:
    """In the manifest's place there is at most the claim of the copy that cleaned up."""
    keys = KEYS.of(builders.segment().metadata)
    for part in left:
        await store.put(getattr(keys, part), CLAIM if part == "manifest" else b"bytes")
    clock.ahead_s = HOUR_S - 60
    assert await sweeper.sweep() == 0
    clock.ahead_s = HOUR_S + 60
    assert await sweeper.sweep() == len(left)
    assert await keys_of(store) == []
    assert await sweeper.sweep() == 0


@pytest.mark.parametrize("missing", [None, "log", "indexes"])
async def test_a_segment_stays_even_when_objects_of_it_are_missing(
    store: ObjectStore, clock: ClockAhead, sweeper: LeftoverSweeper, missing: str | None
) -> None:
    """Damage is for the scrub to report; its manifest is the evidence."""
    storage = RemoteStorage(
        store, options=StorageOptions(), writer_version="test", key_prefix=KEYS.prefix
    )
    segment = builders.segment()
    await storage.copy_log_segment_data(segment.metadata, segment.data)
    if missing is not None:
        await store.delete([getattr(KEYS.of(segment.metadata), missing)])
    before = await keys_of(store)
    clock.ahead_s = 100 * HOUR_S
    assert await sweeper.sweep() == 0
    assert await keys_of(store) == before


async def test_objects_of_others_in_the_store_stay(
    store: ObjectStore, clock: ClockAhead, sweeper: LeftoverSweeper
) -> None:
    log = KEYS.of(builders.segment().metadata).log
    others = ["p/backup/2024.log", "q/" + log.removeprefix("p/"), log + "x", "p/notes", "other"]
    for key in others:
        await store.put(key, b"bytes")
    clock.ahead_s = 100 * HOUR_S
    assert await sweeper.sweep() == 0
    assert await keys_of(store) == sorted(others)


async def test_the_service_sweeps_by_itself(store: ObjectStore) -> None:
    settings = StorageSettings(
        key_prefix=KEYS.prefix,
        copying=CopySettings(sweep_objects_after_s=0.001, sweep_objects_interval_s=0.2),
    )

    async def nothing_is_left() -> bool:
        return not await keys_of(store)

    async with leftover_sweeping(settings, store):
        for _ in range(2):
            await store.put(KEYS.of(builders.segment().metadata).log, b"bytes")
            await eventually(nothing_is_left)
