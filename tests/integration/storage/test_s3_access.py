"""How the store is reached: credentials that rotate, TLS with an own authority, the bucket in path or host (T53)."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from aquifer_core.errors import InvalidConfigurationError, RemoteStorageUnavailableError
from aquifer_storage.adapters.file_credentials import FileCredentials
from aquifer_storage.adapters.s3 import S3ObjectStore
from aquifer_storage.adapters.s3_client import S3Client, S3Options
from aquifer_storage.adapters.s3_errors import RefusedByStoreError
from fixtures.faulty_s3 import Fault, FaultyS3, Identity
from fixtures.object_store import S3Endpoint
from fixtures.polling import eventually
from fixtures.tls_authority import Authority, TlsAuthority, TlsFolder

OLD, NEW = Identity("OLDKEY", "old-secret"), Identity("NEWKEY", "new-secret")


def write(path: Path, identity: Identity) -> None:
    """Replace the file at once, as those who rotate do."""
    text = (
        f"[default]\naws_access_key_id = {identity.access_key}\n"
        f"aws_secret_access_key = {identity.secret_key}\n"
    )
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def file_options(endpoint: str, bucket: str, path: Path) -> S3Options:
    return S3Options(
        endpoint=endpoint,
        bucket=bucket,
        access_key="",
        secret_key="",
        credentials_file=str(path),
        retry_timeout_s=0.5,
    )


async def test_credentials_rotate_under_load_without_an_error(
    faulty_s3: FaultyS3, bucket: str, tmp_path: Path
) -> None:
    """T53: the store takes both while the file changes, then the old ones no more."""
    path = tmp_path / "credentials"
    write(path, OLD)
    faulty_s3.accept(OLD)
    store = S3ObjectStore(file_options(faulty_s3.address, bucket, path))
    is_over = False

    async def load(number: int) -> int:
        done = 0
        while not is_over:
            await store.put(f"k{number}", str(done).encode())
            assert await store.get(f"k{number}") == str(done).encode()
            done += 1
        return done

    async def requests(more: int) -> None:
        wanted = faulty_s3.requests.total() + more
        await eventually(lambda: faulty_s3.requests.total() >= wanted, timeout_s=60)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(load(number)) for number in range(8)]
        for current, following in ((OLD, NEW), (NEW, OLD)):
            await requests(100)
            faulty_s3.accept(current, following)
            write(path, following)
            await requests(20)
            faulty_s3.accept(following)
        await requests(100)
        is_over = True
    assert sum(task.result() for task in tasks) > 100
    await store.close()


async def test_a_request_that_was_signed_just_before_is_signed_again(
    faulty_s3: FaultyS3, bucket: str, tmp_path: Path
) -> None:
    """The store has forgotten the old key while requests with it were on their way."""
    path = tmp_path / "credentials"
    write(path, OLD)
    store = S3ObjectStore(file_options(faulty_s3.address, bucket, path))
    faulty_s3.accept(NEW)
    with pytest.raises(RefusedByStoreError, match="credentials"):
        await store.put("key", b"1")
    faulty_s3.on_request = lambda operation: write(path, NEW)
    await store.put("key", b"1")
    assert await store.get("key") == b"1"
    await store.close()


async def test_an_expired_token_is_known_as_such_by_the_answer_to_head_too(
    faulty_s3: FaultyS3, bucket: str, tmp_path: Path
) -> None:
    """S3 answers HEAD with 400 and nothing else then."""
    path = tmp_path / "credentials"
    write(path, OLD)
    store = S3ObjectStore(file_options(faulty_s3.address, bucket, path))
    faulty_s3.accept(OLD, NEW)
    await store.put("key", b"1")
    faulty_s3.fail("head_object", fault=Fault(status=400), times=2)
    with pytest.raises(RefusedByStoreError, match="credentials"):
        await store.size_bytes("key")
    faulty_s3.on_request = lambda operation: write(path, NEW)
    assert await store.size_bytes("key") == 1
    await store.close()


async def test_a_new_secret_of_the_same_key_is_taken_too_and_after_another_fault(
    faulty_s3: FaultyS3, bucket: str, tmp_path: Path
) -> None:
    path, newer = tmp_path / "credentials", Identity(OLD.access_key, NEW.secret_key)
    write(path, OLD)
    store = S3ObjectStore(
        replace(file_options(faulty_s3.address, bucket, path), retry_timeout_s=60)
    )
    faulty_s3.accept(newer)
    faulty_s3.fail("put_object", fault=Fault(status=503), times=1)
    asked = 0

    def rotate(operation: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            write(path, newer)

    faulty_s3.on_request = rotate
    await store.put("key", b"1")
    assert asked == 3
    await store.close()


async def test_processes_that_start_at_once_make_a_missing_bucket_together(
    s3_server: S3Endpoint,
) -> None:
    options = S3Options(
        endpoint=s3_server.endpoint,
        bucket=f"made-{uuid4().hex}",
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        create_bucket=True,
    )
    stores = [S3ObjectStore(options) for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(store.check())
    assert s3_server.client().bucket_exists(options.bucket)
    s3_server.client().remove_bucket(options.bucket)
    for store in stores:
        await store.close()


def test_a_file_that_cannot_be_read_leaves_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    with pytest.raises(InvalidConfigurationError, match="cannot be read"):
        FileCredentials(path)
    path.write_text("[other]\naws_access_key_id = a\n")
    with pytest.raises(InvalidConfigurationError, match=r"\[default\]"):
        FileCredentials(path)
    write(path, OLD)
    provider = FileCredentials(path)
    path.write_text("[default]\naws_access_key_id = half")
    assert provider.retrieve().access_key == OLD.access_key
    path.unlink()
    assert provider.retrieve().access_key == OLD.access_key
    write(path, NEW)
    assert provider.retrieve().secret_key == NEW.secret_key
    good = path.read_bytes()
    path.write_bytes(b"[" * len(good))
    times = path.stat()
    assert provider.retrieve().secret_key == NEW.secret_key
    path.write_bytes(good.replace(b"new-secret", b"other-one!"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert provider.retrieve().secret_key == "other-one!"


async def test_a_store_with_a_certificate_of_an_own_authority_is_trusted_when_told_so(
    s3_server: S3Endpoint, bucket: str, tls_authority: TlsAuthority
) -> None:
    with FaultyS3(s3_server, tls=tls_authority.server) as proxy:
        for ca_file in (str(tls_authority.ca_file), None):
            store = S3ObjectStore(
                S3Options(
                    endpoint=f"https://{proxy.address}",
                    bucket=bucket,
                    access_key=s3_server.access_key,
                    secret_key=s3_server.secret_key,
                    ca_file=ca_file,
                    retry_timeout_s=0.2,
                )
            )
            data = os.urandom(1 << 20)
            if ca_file is not None:
                await store.put("key", data)
                assert await store.get("key") == data
            else:
                with pytest.raises(RemoteStorageUnavailableError, match="CERTIFICATE_VERIFY"):
                    await store.get("key")
            await store.close()


async def test_the_stores_authority_is_replaced_without_a_restart(
    s3_server: S3Endpoint, bucket: str, tmp_path: Path
) -> None:
    """Each new connection asks for the newest authorities that are whole; a file that is being written changes nothing."""
    old, new = Authority("old"), Authority("new")
    server, client = TlsFolder(tmp_path / "server"), TlsFolder(tmp_path / "client")
    client.write(old, pair=old.issue())
    server.write(old, pair=old.issue())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.certificate_file, server.key_file)
    with FaultyS3(s3_server, tls=tls) as proxy:
        store = S3ObjectStore(
            S3Options(
                endpoint=f"https://{proxy.address}",
                bucket=bucket,
                access_key=s3_server.access_key,
                secret_key=s3_server.secret_key,
                ca_file=str(client.ca_file),
                ca_reload_interval_s=0.01,
                retry_timeout_s=3,
            )
        )

        async def is_reached() -> bool:
            proxy.fail("get_object", fault=Fault(lost=True), times=1)  # a new connection follows
            return await store.get("key") == b"1"

        await store.put("key", b"1")
        whole = client.ca_file.read_bytes()
        for content in (whole[: len(whole) // 2], b""):
            client.ca_file.write_bytes(content)
            assert await is_reached()
        client.ca_file.unlink()
        assert await is_reached()
        client.replace(client.ca_file, old.certificate + new.certificate)
        assert await eventually(is_reached)
        server.write(new, pair=new.issue())
        tls.load_cert_chain(server.certificate_file, server.key_file)
        assert await eventually(is_reached)
        client.replace(client.ca_file, old.certificate)
        await eventually(lambda: raises_unavailable(is_reached))
        await store.close()


async def raises_unavailable(ask: Callable[[], Awaitable[bool]]) -> bool:
    """Whether the store's certificate is believed no more."""
    try:
        await ask()
    except RemoteStorageUnavailableError as error:
        return "CERTIFICATE_VERIFY" in error.message
    return False


@pytest.mark.parametrize(
    ("endpoint", "virtual_host_style", "host", "path"),
    [
        ("s3.example.org", None, "s3.example.org", "/bucket/a/key"),
        ("s3.example.org", True, "bucket.s3.example.org", "/a/key"),
        ("s3.example.org:9000", True, "bucket.s3.example.org:9000", "/a/key"),
        ("https://s3.us-east-1.amazonaws.com", None, "bucket.s3.us-east-1.amazonaws.com", "/a/key"),
        (
            "https://s3.us-east-1.amazonaws.com",
            False,
            "s3.us-east-1.amazonaws.com",
            "/bucket/a/key",
        ),
    ],
)
def test_the_bucket_goes_into_the_path_or_the_host(
    endpoint: str, virtual_host_style: bool | None, host: str, path: str
) -> None:
    client = S3Client(
        S3Options(
            endpoint=endpoint,
            bucket="bucket",
            access_key="a",
            secret_key="s",
            virtual_host_style=virtual_host_style,
        )
    )
    url = urlsplit(client.presigned_get_object("bucket", "a/key"))
    assert (url.netloc, url.path) == (host, path)
    client.close()
