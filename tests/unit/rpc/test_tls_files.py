"""TLS files that are replaced, half written, taken away and put right while they are used."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.settings import TlsClientSettings
from aquifer_rpc.tls_files import TlsFiles, client_files
from cryptography.hazmat.primitives import serialization
from fixtures.tls_authority import Authority, TlsFolder

LONG_S = 3600.0
AUTHORITY, OTHER = Authority("first"), Authority("other")
PAIR, NEXT = AUTHORITY.issue(), AUTHORITY.issue()


@pytest.fixture
def folder(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path / "tls").write(AUTHORITY, pair=PAIR)


def read(folder: TlsFolder, interval_s: float = LONG_S) -> TlsFiles:
    return TlsFiles(
        authorities=folder.ca_file,
        certificates=folder.certificate_file,
        key=folder.key_file,
        interval_s=interval_s,
    )


def test_files_that_changed_are_read_again(folder: TlsFolder) -> None:
    files = read(folder)
    folder.write(OTHER, pair=NEXT)
    with structlog.testing.capture_logs() as logs:
        files.look()

    assert files.material.authorities == OTHER.certificate
    assert files.material.certificates == NEXT.certificate
    assert files.material.key == NEXT.key
    assert [line["event"] for line in logs] == ["tls_files_read"]


def test_a_folder_that_is_exchanged_behind_a_link_is_noticed(tmp_path: Path) -> None:
    """As Kubernetes replaces the content of a mounted secret."""
    TlsFolder(tmp_path / "one").write(AUTHORITY, pair=PAIR)
    TlsFolder(tmp_path / "two").write(AUTHORITY, pair=NEXT)
    (tmp_path / "current").symlink_to("one")
    files = read(TlsFolder(tmp_path / "current"))
    (tmp_path / "fresh").symlink_to("two")
    (tmp_path / "fresh").replace(tmp_path / "current")
    files.look()

    assert files.material.key == NEXT.key


def test_files_are_not_looked_at_before_the_interval_is_over(folder: TlsFolder) -> None:
    waiting, eager = read(folder), read(folder, interval_s=1e-9)
    folder.write(AUTHORITY, pair=NEXT)

    assert waiting.current().key == PAIR.key
    assert eager.current().key == NEXT.key


def test_what_did_not_change_is_the_same_material(folder: TlsFolder) -> None:
    files = read(folder)
    before = files.material
    files.look()
    folder.write(AUTHORITY, pair=PAIR)
    files.look()

    assert files.material == before


def half_of_the_key(folder: TlsFolder) -> None:
    folder.key_file.write_bytes(NEXT.key[: len(NEXT.key) // 2])


def another_key(folder: TlsFolder) -> None:
    folder.replace(folder.key_file, NEXT.key)


def half_of_the_certificate(folder: TlsFolder) -> None:
    folder.certificate_file.write_bytes(NEXT.certificate[: len(NEXT.certificate) // 2])


def a_second_certificate_of_which_half_is_there(folder: TlsFolder) -> None:
    half = AUTHORITY.certificate[: len(AUTHORITY.certificate) // 2]
    folder.replace(folder.certificate_file, PAIR.certificate + half)


def half_of_the_authorities(folder: TlsFolder) -> None:
    folder.ca_file.write_bytes(OTHER.certificate[: len(OTHER.certificate) // 2])


def no_authorities(folder: TlsFolder) -> None:
    folder.ca_file.write_bytes(b"")


def no_key(folder: TlsFolder) -> None:
    folder.key_file.unlink()


def a_folder_in_the_place_of_the_key(folder: TlsFolder) -> None:
    folder.key_file.unlink()
    folder.key_file.mkdir()


def a_key_with_a_password(folder: TlsFolder) -> None:
    key = serialization.load_pem_private_key(PAIR.key, None)
    folder.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


BREAKS: list[Callable[[TlsFolder], None]] = [
    half_of_the_key,
    another_key,
    half_of_the_certificate,
    a_second_certificate_of_which_half_is_there,
    half_of_the_authorities,
    no_authorities,
    no_key,
    a_folder_in_the_place_of_the_key,
    a_key_with_a_password,
]


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda each: str(each.__name__))
def test_files_that_do_not_fit_together_are_refused_and_the_former_stay(
    folder: TlsFolder, break_it: Callable[[TlsFolder], None]
) -> None:
    files = read(folder)
    break_it(folder)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            files.look()
        assert files.material.key == PAIR.key
        if folder.key_file.is_dir():
            folder.key_file.rmdir()
        folder.write(OTHER, pair=NEXT)
        files.look()

    assert files.material.key == NEXT.key
    assert [line["event"] for line in logs] == ["tls_files_refused", "tls_files_read"]


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda each: str(each.__name__))
def test_a_process_does_not_start_with_files_that_do_not_fit_together(
    folder: TlsFolder, break_it: Callable[[TlsFolder], None]
) -> None:
    break_it(folder)

    with pytest.raises(InvalidConfigurationError, match=str(folder.root)):
        read(folder)


@contextmanager
def nobody() -> Iterator[None]:
    """Without the rights of root, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_certificate_without_its_key_is_refused_before_grpc_ends_the_process(
    folder: TlsFolder,
) -> None:
    for settings in (
        TlsClientSettings(certificate_file=folder.certificate_file),
        TlsClientSettings(key_file=folder.key_file),
    ):
        with pytest.raises(InvalidConfigurationError, match="give both or none"):
            client_files(settings)


def test_a_file_that_may_not_be_read_is_refused_until_it_may(folder: TlsFolder) -> None:
    files = read(folder)
    folder.write(AUTHORITY, pair=NEXT)
    folder.key_file.chmod(0)
    with structlog.testing.capture_logs() as logs:
        with nobody():
            files.look()
        assert files.material.key == PAIR.key
        folder.key_file.chmod(0o600)
        files.look()

    assert files.material.key == NEXT.key
    assert [line["event"] for line in logs] == ["tls_files_refused", "tls_files_read"]


def test_channels_of_one_process_share_the_files_of_the_same_settings(folder: TlsFolder) -> None:
    settings = TlsClientSettings(ca_file=folder.ca_file)
    other = TlsClientSettings(
        ca_file=folder.ca_file,
        certificate_file=folder.certificate_file,
        key_file=folder.key_file,
    )

    assert client_files(settings) is client_files(settings.model_copy())
    assert client_files(settings) is not client_files(other)
