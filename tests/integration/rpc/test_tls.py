import datetime
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fixtures.scripted_storage import ScriptedStorage, talking


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


Issue = Callable[[str], Pair]


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Issue]:
    """An authority of this test alone: its certificate, and a function that issues for a name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("authority")
    root = _builder(name, name, key.public_key(), is_authority=True).sign(key, hashes.SHA256())
    root_file = tmp_path / "authority.pem"
    root_file.write_bytes(root.public_bytes(serialization.Encoding.PEM))

    def issue(subject: str) -> Pair:
        own = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(subject), name, own.public_key(), is_authority=False)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
        pair = Pair(tmp_path / f"{subject}.pem", tmp_path / f"{subject}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    return root_file, issue


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


async def _describe(request: Any, context: Any) -> Any:
    return pb.DescribeSegmentResponse()


def _server(pair: Pair, client_ca_file: Path | None) -> GrpcServerSettings:
    return GrpcServerSettings(
        tls=TlsServerSettings(
            certificate_file=pair.certificate, key_file=pair.key, client_ca_file=client_ca_file
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
    known = _client(ca_file=root, certificate_file=own.certificate, key_file=own.key)
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
