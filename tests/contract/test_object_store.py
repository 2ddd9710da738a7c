"""The contract of the object stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.domain.ports import ObjectStore
from contract.object_store import ObjectStoreContract
from fixtures.object_store import S3Endpoint


class TestFilesystem(ObjectStoreContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = FilesystemObjectStore(tmp_path)
        await store.check()
        yield store
        await store.close()


class TestS3(ObjectStoreContract):
    @pytest.fixture
    async def objects(self, s3_server: S3Endpoint, bucket: str) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(
            S3Options(
                endpoint=s3_server.endpoint,
                bucket=bucket,
                access_key=s3_server.access_key,
                secret_key=s3_server.secret_key,
                secure=s3_server.secure,
            )
        )
        await store.check()
        yield store
        await store.close()

    async def test_a_listing_goes_on_after_a_page(self, objects: ObjectStore) -> None:
        keys = [f"k/{number:05}" for number in range(1_005)]
        for key in keys:
            await objects.put(key, b"")
        assert [found.key async for found in objects.list_objects("k/")] == keys
