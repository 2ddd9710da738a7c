"""Stores that can be made to fail: of files, under a storage that cuts small, and the S3 server behind a proxy."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.domain.remote_storage import RemoteStorage
from fixtures.faulty_s3 import FaultyS3
from fixtures.hooked_object_store import COPY_OPTIONS, HookedObjectStore
from fixtures.object_store import S3Endpoint


@pytest.fixture
async def files(tmp_path: Path) -> FilesystemObjectStore:
    store = FilesystemObjectStore(tmp_path)
    await store.check()
    return store


@pytest.fixture
def objects(files: FilesystemObjectStore) -> HookedObjectStore:
    return HookedObjectStore(files)


@pytest.fixture
async def storage(objects: HookedObjectStore) -> AsyncIterator[RemoteStorage]:
    storage = RemoteStorage(objects, options=COPY_OPTIONS, writer_version="1")
    yield storage
    await storage.close()


@pytest.fixture
async def behind_proxy(
    s3_server: S3Endpoint, bucket: str, faulty_s3: FaultyS3
) -> AsyncIterator[Callable[..., S3ObjectStore]]:
    """Opens the test's bucket behind the proxy that misbehaves, with options of `S3Options` as they are given."""
    async with AsyncExitStack() as stack:

        def opened(**options: Any) -> S3ObjectStore:
            store = S3ObjectStore(
                S3Options(
                    endpoint=faulty_s3.address,
                    bucket=bucket,
                    access_key=s3_server.access_key,
                    secret_key=s3_server.secret_key,
                    **options,
                )
            )
            stack.push_async_callback(store.close)
            return store

        yield opened
