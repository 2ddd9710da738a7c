"""A process that is configured wrongly says so in one line and ends with code 2."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from fixtures.polling import eventually
from fixtures.suite import E2E_GROUP, RunningSuite

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

STORAGE = "remote.log.storage.manager.class.name"
METADATA = "remote.log.metadata.manager.class.name"
TIERED = {
    "remote.log.storage.enable": "true",
    STORAGE: "aquifer_client.GrpcRemoteStorageManager",
    "remote.log.storage.endpoints": "127.0.0.1:1",
    METADATA: "aquifer_client.GrpcRemoteLogMetadataManager",
    "remote.log.metadata.endpoints": "127.0.0.1:1",
    "aquifer.manager.endpoints": "127.0.0.1:1",
}
PLUGIN = """
import json, pathlib
from aquifer_client import GrpcRemoteLogMetadataManager, GrpcRemoteStorageManager

class Tolerant(GrpcRemoteLogMetadataManager):
    async def configure(self, configs):
        await super().configure({"endpoints": configs["endpoints"]})

class Recording(GrpcRemoteStorageManager):
    async def configure(self, configs):
        pathlib.Path(configs["told.to"]).write_text(json.dumps(dict(configs)))
        await super().configure({"endpoints": configs["endpoints"]})
"""


async def run(
    argv: list[str], env: dict[str, str], stop_when: Path | None = None
) -> tuple[int, str]:
    """Exit code and standard error of a process, which is asked to stop once a file is there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *argv, env={**os.environ, **env}, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(60):
            if stop_when is not None:
                await eventually(stop_when.exists, timeout_s=60)
                process.terminate()
            _, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


def broker_argv(folder: Path, changes: dict[str, str | None], **more: str) -> list[str]:
    """Command line of a broker with tiering, changed."""
    properties = {
        "node.id": "77",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "logs"),
        "aquifer.metadata.endpoints": "127.0.0.1:1",
        **TIERED,
        **more,
        **changes,
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in properties.items() if v is not None))
    return ["aquifer_broker", str(file)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({STORAGE: None}, [STORAGE, "is missing"]),
        ({STORAGE: ""}, [STORAGE]),
        ({STORAGE: "no.such.Manager"}, [STORAGE, "cannot be imported", "No module named 'no'"]),
        ({STORAGE: "aquifer_client.Nothing"}, [STORAGE, "cannot be imported", "Nothing"]),
        ({STORAGE: "pathlib.Path"}, [STORAGE, "is not a RemoteStorageManager"]),
        ({METADATA: "no.such.Manager"}, [METADATA, "cannot be imported"]),
        (
            {METADATA: "aquifer_client.GrpcRemoteStorageManager"},
            [METADATA, "is not a RemoteLogMetadataManager"],
        ),
        ({"remote.log.storage.enable": "perhaps"}, ["remote.log.storage.enable", "perhaps"]),
        (
            {"remote.log.manager.thread.pool.size": "0"},
            ["remote.log.manager.thread.pool.size", "1000"],
        ),
        (
            {"remote.log.manager.task.interval.ms": "-1"},
            ["remote.log.manager.task.interval.ms", "-1"],
        ),
        ({"remote.log.reader.threads": "1001"}, ["remote.log.reader.threads", "1001"]),
        (
            {"remote.log.reader.max.pending.tasks": "many"},
            ["remote.log.reader.max.pending.tasks", "many"],
        ),
        ({"aquifer.manager.endpoints": None}, ["aquifer.manager.endpoints", "is missing"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
async def test_a_broker_refuses_in_one_line(
    tmp_path: Path, changes: dict[str, str | None], told: list[str]
) -> None:
    """Before it opens or writes anything (SR-2, SR-3, SR-6, SR-7, SR-8, SR-9)."""
    code, stderr = await run(broker_argv(tmp_path, changes), {})
    assert code == 2
    (line,) = stderr.splitlines()
    assert line.startswith("aquifer-broker: ")
    for part in told:
        assert part in line
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"STORAGE__CLASS_NAME": "no.such.Manager"}, ["no.such.Manager", "cannot be imported"]),
        ({"STORAGE__CLASS_NAME": "pathlib.Path"}, ["is not a RemoteStorageManager"]),
        ({"METADATA__CLASS_NAME": "pathlib.Path"}, ["is not a RemoteLogMetadataManager"]),
        ({"THREAD_POOL_SIZE": "0"}, ["AQUIFER_MANAGER_THREAD_POOL_SIZE"]),
        ({"TASK_INTERVAL_MS": "0"}, ["AQUIFER_MANAGER_TASK_INTERVAL_MS"]),
        ({"READER_THREADS": "1001"}, ["AQUIFER_MANAGER_READER_THREADS"]),
        ({"READER_MAX_PENDING_TASKS": "0"}, ["AQUIFER_MANAGER_READER_MAX_PENDING_TASKS"]),
        ({"THREAD_POOL": "3"}, ["AQUIFER_MANAGER_THREAD_POOL ", "THREAD_POOL_SIZE"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
async def test_a_manager_refuses_in_one_line(
    tmp_path: Path, env: dict[str, str], told: list[str]
) -> None:
    """As brokers do (SR-2, SR-3, SR-6, SR-7, SR-8, SR-9)."""
    defaults = {
        "STORAGE__ENDPOINTS": "127.0.0.1:1",
        "METADATA__ENDPOINTS": "127.0.0.1:1",
        "DATA_DIR": str(tmp_path),
    }
    variables = {f"AQUIFER_MANAGER_{key}": value for key, value in (defaults | env).items()}
    code, stderr = await run(["aquifer_manager"], variables)
    assert code == 2
    (line,) = stderr.splitlines()
    for part in told:
        assert part in line


async def test_a_plugin_is_told_every_property_of_its_prefix_untouched(
    suite: RunningSuite, tmp_path: Path
) -> None:
    """As strings, with broker id, cluster id and first log dir (SR-4, SR-5)."""
    (tmp_path / "recording_plugin.py").write_text(PLUGIN)
    told = tmp_path / "told.json"
    argv = broker_argv(
        tmp_path,
        {
            STORAGE: "recording_plugin.Recording",
            METADATA: "recording_plugin.Tolerant",
            "aquifer.metadata.endpoints": suite.stack.address("metadata"),
            "remote.log.storage.endpoints": suite.stack.address("storage"),
            "remote.log.storage.told.to": str(told),
            "remote.log.storage.number": "007",
            "remote.log.storage.Odd.Key_": " spaces are trimmed as Java does ",
            "remote.log.metadata.elsewhere": "not for this plugin",
        },
    )
    code, stderr = await run(argv, {"PYTHONPATH": str(tmp_path)}, stop_when=told)
    configs = json.loads(told.read_text())
    assert code == 0, stderr
    assert configs["number"] == "007"
    assert configs["Odd.Key_"].strip() == "spaces are trimmed as Java does"
    assert configs["broker.id"] == "77"
    assert len(configs["cluster.id"]) == 22
    assert configs["log.dir"] == str(tmp_path / "logs")
    assert not [key for key in configs if "elsewhere" in key or key.startswith("remote.")]
