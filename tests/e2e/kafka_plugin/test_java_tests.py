"""The plugin's own tests in Java, its managers against running services."""

import re
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_standalone.programs import run_program
from aquifer_storage.app import running_server
from aquifer_storage.settings import Backend, FilesystemSettings, StorageSettings

_POM: Final = Path(__file__).parents[3] / "clients" / "kafka-plugin" / "pom.xml"
_LONGEST_S: Final = 1700
_TOTALS: Final = re.compile(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\n")
_OURS: Final = re.compile(r"(io/)?aquifer/")


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


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("kafka_plugin")
async def test_the_tests_of_the_plugin_pass_against_running_services(
    storage_server: GrpcServer, metadata_server: GrpcServer, tmp_path: Path
) -> None:
    """K-7.3 and K-1.1 in Java, compiled in a folder of their own; the jar is built first, so that Maven has all it needs."""
    services = (
        f"AQUIFER_TEST_STORAGE_ENDPOINTS=127.0.0.1:{storage_server.port}",
        f"AQUIFER_TEST_METADATA_ENDPOINTS=127.0.0.1:{metadata_server.port}",
    )
    maven = ("mvn", "--batch-mode", "--file", str(_POM), f"-Dbuild.folder={tmp_path}", "test")
    ended = await run_program(["env", *services, *maven], timeout_s=_LONGEST_S)
    output = ended.output.decode(errors="replace")
    totals = [[int(each) for each in found] for found in _TOTALS.findall(output)]
    assert totals, output[-10_000:]
    run, failures, errors, skipped = totals[-1]
    assert run > 100
    assert (failures, errors, skipped) == (0, 0, 0), output[-10_000:]


@pytest.mark.timeout(1800)
def test_the_jar_brings_nothing_that_a_broker_has_already(kafka_plugin: Path) -> None:
    with zipfile.ZipFile(kafka_plugin) as jar:
        names = [name for name in jar.namelist() if name.endswith(".class")]
    foreign = [name for name in names if not _OURS.match(name)]
    assert names
    assert not foreign


@pytest.mark.timeout(1800)
async def test_the_preflight_passes_when_all_is_well_and_says_what_is_not(
    kafka_plugin: Path, storage_server: GrpcServer, metadata_server: GrpcServer, tmp_path: Path
) -> None:
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "io.aquifer.kafka.GrpcRemoteStorageManager",
        "remote.log.storage.manager.class.path": str(kafka_plugin),
        "rsm.config.aquifer.storage.endpoints": f"127.0.0.1:{storage_server.port}",
        "remote.log.metadata.manager.class.name": "io.aquifer.kafka.GrpcRemoteLogMetadataManager",
        "remote.log.metadata.manager.class.path": str(kafka_plugin),
        "rlmm.config.aquifer.metadata.endpoints": f"127.0.0.1:{metadata_server.port}",
    }
    code, output = await _check(kafka_plugin, tmp_path, properties)
    assert code == 0, output
    assert [line.partition(":")[0] for line in output.splitlines()] == ["ok", "ok"]

    del properties["rlmm.config.aquifer.metadata.endpoints"]
    code, output = await _check(kafka_plugin, tmp_path, properties)
    assert code == 1
    assert "problem: rlmm.config.aquifer.metadata.endpoints is missing" in output


async def _check(jar: Path, folder: Path, properties: Mapping[str, str]) -> tuple[int, str]:
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    ended = await run_program(["java", "-jar", str(jar), "check", str(file)], timeout_s=_LONGEST_S)
    return ended.exit_code, ended.output.decode(errors="replace")
