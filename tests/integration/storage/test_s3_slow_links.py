"""Bodies over slow links: sent for as long as bytes move, given up when they do not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Options
from aquifer_storage.domain.options import MIB
from fixtures.network import TcpProxy
from fixtures.object_store import S3Endpoint

PART = bytes(range(256)) * (48 * MIB // 256)


@pytest.fixture
async def proxy(s3_server: S3Endpoint) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(int(s3_server.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
async def store(
    s3_server: S3Endpoint, bucket: str, proxy: TcpProxy
) -> AsyncIterator[S3ObjectStore]:
    """The real store behind the proxy; a part takes far longer than connecting may."""
    store = S3ObjectStore(
        S3Options(
            endpoint=proxy.address,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            connect_timeout_s=0.4,
            read_timeout_s=5,
            retry_timeout_s=0.1,
        )
    )
    yield store
    await store.close()


async def test_a_large_part_over_a_slow_link_takes_as_long_as_it_takes(
    store: S3ObjectStore, proxy: TcpProxy
) -> None:
    """Neither the time to connect nor the longest silence bounds a body whose bytes move."""
    upload = await store.start_upload("key", len(PART))
    await proxy.cut()
    proxy.limit(16 * MIB)
    await upload.put_part(1, PART)
    proxy.limit(None)
    await upload.complete()
    assert store.totals.requests["upload_part"] == 1
    assert await store.get("key") == PART


async def test_a_part_that_stalls_is_given_up_in_bounded_time(
    store: S3ObjectStore, proxy: TcpProxy
) -> None:
    """T01: every call has a deadline."""
    upload = await store.start_upload("key", len(PART))
    proxy.pause()
    async with asyncio.timeout(60):
        with pytest.raises(RemoteStorageUnavailableError, match="timed out"):
            await upload.put_part(1, PART)
    proxy.resume()
    await upload.put_part(1, PART)
    await upload.complete()
    assert await store.size_bytes("key") == len(PART)
