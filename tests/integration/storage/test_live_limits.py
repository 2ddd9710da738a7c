"""A running service takes new limits without a restart (T47)."""

import asyncio
from pathlib import Path

import builders
import pytest
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.settings import GrpcServerSettings
from aquifer_storage.app import running_server
from aquifer_storage.settings import Backend, FilesystemSettings, StorageSettings
from contract.remote_storage_manager import copied, joined


def settings(tmp_path: Path) -> StorageSettings:
    return StorageSettings(
        backend=Backend.FILESYSTEM,
        filesystem=FilesystemSettings(root=tmp_path / "store"),
        grpc=GrpcServerSettings(drain_grace_s=0.2),
        limits_file=tmp_path / "limits.json",
        limits_check_interval_s=0.05,
    )


async def test_a_copy_that_is_held_back_goes_on_when_its_limit_is_lifted(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text('{"copy": {"bytes_per_s": 1}}')
    first, segment, other = builders.segment(), builders.segment(), builders.segment()
    async with running_server(settings(tmp_path)) as server:
        storage = GrpcRemoteStorageManager()
        await storage.configure({"endpoints": f"127.0.0.1:{server.port}"})
        await copied(storage, first)  # nothing is owed before it
        copying = asyncio.create_task(copied(storage, segment))
        done, _ = await asyncio.wait([copying], timeout=0.5)
        assert not done
        path.write_text('{"verify": {"concurrency": 1}}')
        async with asyncio.timeout(60):
            metadata = await copying
            assert await joined(storage.fetch_log_segment(metadata, 0)) == segment.log
            await copied(storage, other)
        await storage.close()


async def test_a_service_does_not_start_with_limits_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text('{"copy": {"bytes_per_s": "fast"}}')
    with pytest.raises(InvalidConfigurationError, match="bytes_per_s"):
        async with running_server(settings(tmp_path)):
            pass
