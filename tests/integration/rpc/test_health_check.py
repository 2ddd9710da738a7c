"""The health check that containers run."""

import asyncio
from pathlib import Path

import pytest
from aquifer_rpc.health_check import check, main
from aquifer_rpc.settings import GrpcServerSettings, TlsServerSettings
from aquifer_standalone.ports import hold_port
from fixtures.scripted_storage import SERVICE, ScriptedStorage, serving
from fixtures.tls_authority import Authority, TlsFolder


async def _fails() -> None:
    raise ConnectionError("no database")


async def test_a_server_that_serves_is_healthy() -> None:
    async with serving(ScriptedStorage()) as server:
        address = f"127.0.0.1:{server.port}"
        assert await check(address) is None
        assert await check(address, service=SERVICE) is None


async def test_a_server_that_lacks_a_dependency_is_not() -> None:
    async with serving(ScriptedStorage(), probes={"database": _fails}) as server:
        address = f"127.0.0.1:{server.port}"
        assert await check(address) == f"{address}: NOT_SERVING"


async def test_a_service_that_the_server_does_not_have_is_not() -> None:
    async with serving(ScriptedStorage()) as server:
        wrong = await check(f"127.0.0.1:{server.port}", service="aquifer.none.v1.None")
        assert wrong is not None


def test_a_server_that_is_not_there_is_one_line_and_exit_code_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with hold_port() as port:
        assert main([f"127.0.0.1:{port.number}", "--timeout", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith(f"127.0.0.1:{port.number}: ")


async def test_a_container_asks_on_the_loopback_for_a_certificate_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Certificates are for the names under which others call."""
    authority = Authority()
    folder = TlsFolder(tmp_path / "tls").write(authority, pair=authority.issue(host="storage.test"))
    tls = TlsServerSettings(certificate_file=folder.certificate_file, key_file=folder.key_file)
    settings = GrpcServerSettings(tls=tls)
    async with serving(ScriptedStorage(), settings=settings) as server:
        arguments = [f"127.0.0.1:{server.port}", "--ca", str(folder.ca_file), "--timeout", "30"]
        named = [*arguments, "--server-name", "storage.test"]
        assert await asyncio.to_thread(main, named) == 0, capsys.readouterr().err
        assert await asyncio.to_thread(main, [*named, "--server-name", "another.test"]) == 1
