from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.errors import InvalidConfigurationError, RemoteStorageUnavailableError
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import (
    GrpcClientSettings,
    GrpcServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from fixtures.scripted_storage import ScriptedStorage, talking
from fixtures.tls_authority import Authority, TlsFolder

Issue = Callable[[str], TlsFolder]


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Issue]:
    """An authority of this test alone: its certificate, and a function that issues for a name."""
    made = Authority()

    def issue(subject: str) -> TlsFolder:
        return TlsFolder(tmp_path / subject).write(made, pair=made.issue(subject))

    return issue("authority").ca_file, issue


async def _describe(request: Any, context: Any) -> Any:
    return pb.DescribeSegmentResponse()


def _server(files: TlsFolder, client_ca_file: Path | None) -> GrpcServerSettings:
    return GrpcServerSettings(
        tls=TlsServerSettings(
            certificate_file=files.certificate_file,
            key_file=files.key_file,
            client_ca_file=client_ca_file,
        )
    )


def _client(**files: Path) -> GrpcClientSettings:
    return GrpcClientSettings(tls=TlsClientSettings.model_validate(files), max_attempts=1)


async def test_a_server_with_a_certificate_is_trusted_by_its_authority(
    authority: tuple[Path, Issue],
) -> None:
    root, issue = authority
    settings = _server(issue("server"), None)
    servicer = ScriptedStorage(describe=_describe)
    async with talking(servicer, settings=settings, client=_client(ca_file=root)) as (stub, _):
        await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), deadline_s=20)

    assert servicer.calls == 1


async def test_clients_must_show_a_certificate_when_the_server_asks_for_one(
    authority: tuple[Path, Issue],
) -> None:
    root, issue = authority
    settings = _server(issue("server"), root)
    own = issue("client")
    known = _client(ca_file=root, certificate_file=own.certificate_file, key_file=own.key_file)
    request = pb.DescribeSegmentRequest()

    servicer = ScriptedStorage(describe=_describe)
    async with talking(servicer, settings=settings, client=known) as (stub, _):
        await call_unary(stub.DescribeSegment, request, deadline_s=20)
    async with talking(servicer, settings=settings, client=_client(ca_file=root)) as (stub, _):
        with pytest.raises(RemoteStorageUnavailableError):
            await call_unary(stub.DescribeSegment, request, deadline_s=20)

    assert servicer.calls == 1


async def test_plaintext_clients_do_not_reach_a_server_with_tls(
    authority: tuple[Path, Issue],
) -> None:
    _, issue = authority
    servicer = ScriptedStorage(describe=_describe)
    client = GrpcClientSettings(max_attempts=1)
    async with talking(servicer, settings=_server(issue("server"), None), client=client) as (
        stub,
        _,
    ):
        with pytest.raises(RemoteStorageUnavailableError):
            await call_unary(stub.DescribeSegment, pb.DescribeSegmentRequest(), deadline_s=20)

    assert servicer.calls == 0


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"/nowhere\.pem cannot be read"):
        connect("127.0.0.1:1", settings=_client(ca_file=Path("/nowhere.pem")))
