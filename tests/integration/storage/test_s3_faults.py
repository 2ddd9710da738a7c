"""An S3 store that is slow, away, busy or refuses: retried within limits, told truthfully, never fatal (SR-36, SR-37)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import builders
import pytest
from aquifer_core.errors import RemoteResourceNotFoundError, RemoteStorageUnavailableError
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Client, S3Options
from aquifer_storage.adapters.s3_errors import RefusedByStoreError
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from contract.remote_storage_manager import copied, joined
from fixtures.network import TcpProxy
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually

OPTIONS = StorageOptions(
    part_size_bytes=5 * MIB, single_put_max_bytes=0, upload_budget_bytes=20 * MIB
)


class ScriptedStore(ThreadingHTTPServer):
    """Answers each request with the next status of a script, then with the last one for ever."""

    daemon_threads = True

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.statuses = statuses
        self.requests = 0

    def next_status(self) -> int:
        """Status of the next answer."""
        self.requests += 1
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


class ScriptedHandler(BaseHTTPRequestHandler):
    """Speaks just enough S3."""

    protocol_version = "HTTP/1.1"
    codes: ClassVar[dict[int, str]] = {503: "SlowDown", 429: "TooManyRequests", 403: "AccessDenied"}

    def answer(self) -> None:
        """Answer with the script's status."""
        assert isinstance(self.server, ScriptedStore)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = self.server.next_status()
        code = self.codes.get(status)
        body = b"data" if code is None else f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = answer  # noqa: N815 - the names are the library's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet."""


@contextmanager
def scripted(statuses: list[int]) -> Iterator[ScriptedStore]:
    """A scripted store that runs."""
    with ScriptedStore(statuses) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def options(endpoint: str, *, bucket: str = "bucket", retry_timeout_s: float = 30) -> S3Options:
    """Options with short times."""
    return S3Options(
        endpoint=endpoint,
        bucket=bucket,
        access_key="a",
        secret_key="s",
        connect_timeout_s=10,
        read_timeout_s=10,
        retry_timeout_s=retry_timeout_s,
    )


@pytest.mark.parametrize("status", [503, 429, 500])
async def test_a_busy_store_is_asked_again(status: int) -> None:
    """T48: 503 is back-pressure, never fatal."""
    with scripted([status, status, 200]) as server:
        store = S3ObjectStore(options(f"127.0.0.1:{server.server_port}"))
        assert await store.get("key") == b"data"
        assert store.totals.requests["get_object"] == server.requests == 3
        await store.close()


async def test_a_store_that_stays_busy_is_reported_as_unavailable() -> None:
    with scripted([503]) as server:
        store = S3ObjectStore(options(f"127.0.0.1:{server.server_port}", retry_timeout_s=2))
        with pytest.raises(RemoteStorageUnavailableError, match="SlowDown") as raised:
            await store.put("key", b"data")
        assert raised.value.retry_after_ms
        assert server.requests > 1
        await store.close()


async def test_refused_credentials_are_not_tried_again() -> None:
    """T56: the text says what is wrong."""
    with scripted([403]) as server:
        store = S3ObjectStore(options(f"127.0.0.1:{server.server_port}"))
        with pytest.raises(RefusedByStoreError, match="credentials"):
            await store.get("key")
        assert server.requests == 1
        await store.close()


async def test_a_store_that_is_not_there_is_reported_as_unavailable() -> None:
    store = S3ObjectStore(options("127.0.0.1:1", retry_timeout_s=0.2))
    with pytest.raises(RemoteStorageUnavailableError, match="does not answer"):
        await store.get("key")
    await store.close()


@pytest.fixture
async def proxy(s3_server: S3Endpoint) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(int(s3_server.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
async def store(
    s3_server: S3Endpoint, bucket: str, proxy: TcpProxy
) -> AsyncIterator[S3ObjectStore]:
    """The real store behind the proxy."""
    store = S3ObjectStore(behind(proxy, s3_server, bucket, retry_timeout_s=60))
    yield store
    await store.close()


@pytest.fixture
async def hasty(
    s3_server: S3Endpoint, bucket: str, proxy: TcpProxy
) -> AsyncIterator[S3ObjectStore]:
    """The same with short times."""
    store = S3ObjectStore(behind(proxy, s3_server, bucket, read_timeout_s=2, retry_timeout_s=4))
    yield store
    await store.close()


def behind(proxy: TcpProxy, server: S3Endpoint, bucket: str, **times_s: float) -> S3Options:
    return S3Options(
        endpoint=proxy.address,
        bucket=bucket,
        access_key=server.access_key,
        secret_key=server.secret_key,
        **times_s,
    )


def bucket_content(s3_server: S3Endpoint, bucket: str) -> list[str]:
    """Keys and unfinished uploads, seen past the proxy."""
    client = S3Client(
        S3Options(
            endpoint=s3_server.endpoint,
            bucket=bucket,
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
        )
    )
    uploads = client._list_multipart_uploads(bucket, max_uploads=1000).uploads
    keys = [str(found.object_name) for found in client.list_objects(bucket, recursive=True)]
    return keys + [f"upload of {upload.object_name}" for upload in uploads]


async def test_a_store_that_hangs_is_given_up_in_time(
    store: S3ObjectStore, hasty: S3ObjectStore, proxy: TcpProxy
) -> None:
    """T01: every call has a deadline."""
    await store.put("key", b"data")
    proxy.pause()
    async with asyncio.timeout(60):
        with pytest.raises(RemoteStorageUnavailableError):
            await hasty.get("key")
    proxy.resume()
    assert await store.get("key") == b"data"


async def test_a_read_goes_on_where_its_connection_was_cut(
    store: S3ObjectStore, proxy: TcpProxy
) -> None:
    data = bytes(range(256)) * (16 * MIB // 256)
    await store.put("key", data)
    found = b""
    async for piece in store.read("key", 0, [4 * MIB] * 4):
        found += piece
        if len(found) == 4 * MIB:
            await proxy.cut()
    assert found == data
    assert store.totals.requests["get_object"] == 2


async def test_a_copy_survives_connections_that_are_cut(
    store: S3ObjectStore, proxy: TcpProxy
) -> None:
    storage = RemoteStorage(store, options=OPTIONS, writer_version="1")
    log = builders.renumbered_log(24 * MIB, builders.record_batch(100, 16, 8_000), 100)
    segment = builders.segment(log)
    async with asyncio.TaskGroup() as group:
        copy = group.create_task(copied(storage, segment))
        await eventually(lambda: store.totals.requests["upload_part"] >= 1)
        await proxy.cut()
        await eventually(lambda: store.totals.requests["upload_part"] >= 3)
        await proxy.cut()
    assert await joined(storage.fetch_log_segment(copy.result(), 0)) == log


async def test_a_copy_that_fails_leaves_nothing_in_the_bucket(
    store: S3ObjectStore, proxy: TcpProxy, s3_server: S3Endpoint, bucket: str
) -> None:
    """SR-16, T16: neither objects nor unfinished uploads."""
    storage = RemoteStorage(store, options=OPTIONS, writer_version="1")
    log = builders.renumbered_log(24 * MIB, builders.record_batch(100, 16, 8_000), 100)
    segment = builders.segment(log)

    class Failing(builders.BytesLogSource):
        async def chunks(self) -> AsyncIterator[bytes | memoryview]:
            async for piece in super().chunks():
                yield piece
                if store.totals.requests["upload_part"] >= 2:
                    raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await copied(storage, segment.with_data(log_segment=Failing(data=log)))
    assert bucket_content(s3_server, bucket) == []
    copy = asyncio.create_task(copied(storage, segment))
    await eventually(lambda: store.totals.requests["upload_part"] >= 4)
    copy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copy
    assert bucket_content(s3_server, bucket) == []


async def test_what_a_copy_left_while_the_store_was_away_goes_with_the_deletion(
    hasty: S3ObjectStore, proxy: TcpProxy, s3_server: S3Endpoint, bucket: str
) -> None:
    storage = RemoteStorage(hasty, options=OPTIONS, writer_version="1")
    log = builders.renumbered_log(24 * MIB, builders.record_batch(100, 16, 8_000), 100)
    segment = builders.segment(log)
    copy = asyncio.create_task(copied(storage, segment))
    await eventually(lambda: hasty.totals.requests["upload_part"] >= 2)
    await proxy.refuse()
    with pytest.raises(RemoteStorageUnavailableError):
        await copy
    assert bucket_content(s3_server, bucket) != []
    proxy.resume()
    await storage.delete_log_segment_data(segment.metadata)
    assert bucket_content(s3_server, bucket) == []


async def test_a_missing_bucket_is_not_a_missing_segment(
    s3_server: S3Endpoint,
) -> None:
    store = S3ObjectStore(
        S3Options(
            endpoint=s3_server.endpoint,
            bucket="no-such-bucket",
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
        )
    )
    storage = RemoteStorage(store, options=OPTIONS, writer_version="1")
    for attempt in (store.check(), storage.describe_segment(builders.segment().metadata)):
        with pytest.raises(RemoteStorageUnavailableError, match="bucket") as raised:
            await attempt
        assert not isinstance(raised.value, RemoteResourceNotFoundError)
    await storage.close()
