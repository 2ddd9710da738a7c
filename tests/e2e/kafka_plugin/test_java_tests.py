"""The plugin's own tests in Java, its managers against running services."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.app import running_server
from aquifer_storage.settings import Backend, FilesystemSettings, StorageSettings

_POM: Final = Path(__file__).parents[3] / "clients" / "kafka-plugin" / "pom.xml"
_LONGEST_S: Final = 800
_TOTALS: Final = re.compile(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\n")


@pytest.fixture
async def storage_server(tmp_path: Path) -> AsyncIterator[GrpcServer]:
    """A storage service on a folder."""
    settings = StorageSettings(
        backend=Backend.FILESYSTEM,
        filesystem=FilesystemSettings(root=tmp_path / "objects"),
        grpc=GrpcServerSettings(drain_grace_s=0),
    )
    async with running_server(settings) as server:
        yield server


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("kafka_plugin")
async def test_the_tests_of_the_plugin_pass_against_running_services(
    storage_server: GrpcServer, metadata_server: GrpcServer
) -> None:
    """K-7.3 and K-1.1 in Java; the jar is built first, so that nothing else compiles at the same time."""
    output = await _maven_test(
        {
            "AQUIFER_TEST_STORAGE_ENDPOINTS": f"127.0.0.1:{storage_server.port}",
            "AQUIFER_TEST_METADATA_ENDPOINTS": f"127.0.0.1:{metadata_server.port}",
        }
    )
    totals = [[int(each) for each in found] for found in _TOTALS.findall(output)]
    assert totals, output[-10_000:]
    run, failures, errors, skipped = totals[-1]
    assert run > 50
    assert (failures, errors, skipped) == (0, 0, 0), output[-10_000:]


async def _maven_test(environment: Mapping[str, str]) -> str:
    maven = shutil.which("mvn")
    assert maven is not None
    process = await asyncio.create_subprocess_exec(
        *(maven, "--batch-mode", "--file", str(_POM), "test"),
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_LONGEST_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode(errors="replace")
