"""A store of files whose operations can be watched, and made to fail, under a storage that cuts small."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.remote_storage import RemoteStorage
from fixtures.hooked_object_store import COPY_OPTIONS, HookedObjectStore


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
