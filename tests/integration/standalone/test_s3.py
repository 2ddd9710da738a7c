"""The S3 server as a supervised process: it is ready when it takes writes, and keeps them through crashes."""

import io
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from aquifer_standalone.ports import LoopbackPort, hold_ports
from aquifer_standalone.process import ChildProcess, ProcessState
from aquifer_standalone.readiness import S3Target, s3_writable, tcp_open
from aquifer_standalone.s3 import PORT_COUNT, EmbeddedS3
from fixtures.polling import eventually
from minio import Minio
from minio.error import S3Error

_MIB = 1024 * 1024
_PART = bytes(range(256)) * 4096


def _server(root: Path, ports: Sequence[LoopbackPort] | None = None) -> EmbeddedS3:
    return EmbeddedS3(
        root, access_key="access", secret_key="a secret of tests", bucket="segments", ports=ports
    )


def _client(target: S3Target) -> Minio:
    return target.client(timeout_s=60)


def _read(client: Minio, key: str) -> bytes:
    response = client.get_object("segments", key)
    try:
        return response.read()
    finally:
        response.close()
        response.release_conn()


async def test_a_ready_server_has_its_bucket_and_listens_on_the_loopback_only(
    tmp_path: Path,
) -> None:
    ports = hold_ports(PORT_COUNT)
    server = _server(tmp_path, ports)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs") as child:
        client = _client(server.target)
        assert client.bucket_exists("segments")
        assert list(client.list_objects("segments", recursive=True)) == []
        listening = [
            connection.laddr
            for connection in psutil.Process(child.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        assert {address.port for address in listening} <= {port.number for port in ports}
    assert not await tcp_open("127.0.0.1", ports[0].number)


async def test_wrong_credentials_and_unknown_buckets_are_refused(tmp_path: Path) -> None:
    server = _server(tmp_path)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs"):
        intruder = S3Target(
            endpoint=server.target.endpoint, access_key="access", secret_key="guess"
        )
        with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
            _client(intruder).put_object("segments", "key", io.BytesIO(b"x"), 1)
        with pytest.raises(S3Error, match="NoSuchBucket"):
            _client(server.target).put_object("nowhere", "key", io.BytesIO(b"x"), 1)
        assert not await s3_writable(intruder, "segments")


async def test_objects_survive_a_crash_of_the_server(tmp_path: Path) -> None:
    server = _server(tmp_path)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs") as child:
        client = _client(server.target)
        client.put_object("segments", "small", io.BytesIO(b"water"), 5)
        client.put_object("segments", "large", io.BytesIO(_PART * 24), 24 * _MIB)
        first = child.pid
        child.signal(signal.SIGKILL)
        await eventually(lambda: child.state is ProcessState.READY and child.pid != first, 60)
        assert _read(client, "small") == b"water"
        assert _read(client, "large") == _PART * 24


async def test_objects_survive_a_stop_and_a_start_on_other_ports(tmp_path: Path) -> None:
    first = _server(tmp_path)
    async with ChildProcess(first.spec(), log_dir=tmp_path / "logs"):
        _client(first.target).put_object("segments", "small", io.BytesIO(b"water"), 5)
    second = _server(tmp_path)
    assert second.target.endpoint != first.target.endpoint
    async with ChildProcess(second.spec(), log_dir=tmp_path / "logs"):
        client = _client(second.target)
        assert _read(client, "small") == b"water"
        client.put_object("segments", "more", io.BytesIO(b"more water"), 10)
        assert _read(client, "more") == b"more water"


async def test_many_buckets_fit_beside_each_other(tmp_path: Path) -> None:
    server = _server(tmp_path)
    async with ChildProcess(server.spec(), log_dir=tmp_path / "logs"):
        client = _client(server.target)
        names = [f"bucket-{number}" for number in range(60)]

        def fill(name: str) -> int:
            client.make_bucket(name)
            client.put_object(name, "key", io.BytesIO(name.encode()), len(name))
            return client.stat_object(name, "key").size or 0

        with ThreadPoolExecutor(max_workers=8) as pool:
            sizes = list(pool.map(fill, names))
        assert sizes == [len(name) for name in names]
