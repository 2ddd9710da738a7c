"""Uploads in parts that crashed processes left behind go by age; those of others stay (SR-16)."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import builders
import pytest
from aquifer_core.clock import SystemClock
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.app import running_server
from aquifer_storage.domain.object_key import ObjectKeys
from aquifer_storage.domain.options import MIB
from aquifer_storage.domain.upload_sweeper import UploadSweeper
from aquifer_storage.settings import CopySettings, S3Settings, StorageSettings
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually
from pydantic import SecretStr

HOUR_S = 3600.0
PART = bytes(5 * MIB)
KEYS = ObjectKeys("p/")
LOG_KEY = KEYS.of(builders.segment().metadata).log
FOREIGN_KEYS = ["p/backup/2024.log", "q/" + LOG_KEY.removeprefix("p/"), LOG_KEY + "x", "p/notes"]


class LaterStore(S3ObjectStore):
    """A store whose clock is ahead of when its uploads began."""

    ahead_s = 0.0

    async def store_time_ms(self) -> int | None:
        now_ms = await super().store_time_ms()
        return None if now_ms is None else now_ms + int(self.ahead_s * 1000)


class ClockAhead(SystemClock):
    """A clock that goes wrong by days."""

    def now_ms(self) -> int:
        return super().now_ms() + int(100 * HOUR_S * 1000)


def s3_options(s3_server: S3Endpoint, bucket: str) -> S3Options:
    return S3Options(
        endpoint=s3_server.endpoint,
        bucket=bucket,
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
    )


@pytest.fixture
async def s3(s3_server: S3Endpoint, bucket: str) -> AsyncIterator[LaterStore]:
    store = LaterStore(s3_options(s3_server, bucket), clock=ClockAhead())
    yield store
    await store.close()


async def test_an_upload_goes_when_it_is_older_than_any_copy(
    s3: LaterStore,
) -> None:
    sweeper = UploadSweeper(s3, KEYS, older_than_s=HOUR_S)
    upload = await s3.start_upload(LOG_KEY, len(PART))
    await upload.put_part(1, PART)
    s3.ahead_s = HOUR_S - 60
    assert await sweeper.sweep() == 0
    s3.ahead_s = HOUR_S + 60
    assert await sweeper.sweep() == 1
    assert await s3.abort_uploads(LOG_KEY) == 0
    assert await sweeper.sweep() == 0


async def test_uploads_of_others_in_the_bucket_stay(s3: LaterStore) -> None:
    for key in FOREIGN_KEYS:
        await s3.start_upload(key, len(PART))
    s3.ahead_s = 100 * HOUR_S
    assert await UploadSweeper(s3, KEYS, older_than_s=HOUR_S).sweep() == 0
    assert [await s3.abort_uploads(key) for key in FOREIGN_KEYS] == [1] * len(FOREIGN_KEYS)


async def test_files_that_nobody_writes_to_go(tmp_path: Path) -> None:
    store = FilesystemObjectStore(tmp_path)
    stale = await store.start_upload("a/old.log", len(PART))
    await stale.put_part(1, PART)
    for path in (tmp_path / ".uploads").iterdir():
        past = time.time() - 2 * HOUR_S
        os.utime(path, (past, past))
    live = await store.start_upload("a/new.log", len(PART))
    assert await UploadSweeper(store, KEYS, older_than_s=HOUR_S).sweep() == 1
    await live.put_part(1, PART)
    await live.complete()
    assert await store.get("a/new.log") == PART
    await store.close()


async def test_the_service_sweeps_by_itself(
    s3_server: S3Endpoint, bucket: str, s3: S3ObjectStore
) -> None:
    """An upload that appears while the service runs goes as well: the sweep is periodic."""
    settings = StorageSettings(
        key_prefix=KEYS.prefix,
        s3=S3Settings(
            endpoint=s3_server.endpoint,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=SecretStr(s3_server.secret_key),
        ),
        copying=CopySettings(timeout_s=0.001, sweep_uploads_after_s=0.001, sweep_interval_s=0.2),
    )

    async def none_is_left() -> bool:
        page = await s3.request("list_uploads", "", lambda client: client.uploads_page("", ""))
        return not page.uploads

    async with running_server(settings):
        for _ in range(2):
            await s3.start_upload(LOG_KEY, len(PART))
            await eventually(none_is_left)
