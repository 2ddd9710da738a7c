"""Settings of the service and properties of the plugged managers."""

from pathlib import Path

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ports import RemoteStorageManager
from aquifer_rpc.settings import load_settings
from aquifer_storage.adapters.managers import (
    FilesystemRemoteStorageManager,
    S3RemoteStorageManager,
)
from aquifer_storage.app import s3_options, storage_options
from aquifer_storage.domain.options import MIB, StorageOptions
from aquifer_storage.settings import PREFIX, StorageSettings


def test_the_default_settings_are_the_default_options() -> None:
    assert storage_options(StorageSettings()) == StorageOptions()
    assert s3_options(StorageSettings().s3).endpoint == "127.0.0.1:9000"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AQUIFER_STORAGE_S3__SECRET_KEY", "hidden")
    monkeypatch.setenv("AQUIFER_STORAGE_COPYING__PART_SIZE_BYTES", str(8 * MIB))
    settings = load_settings(StorageSettings, PREFIX)
    assert s3_options(settings.s3).secret_key == "hidden"
    assert storage_options(settings).part_size_bytes == 8 * MIB
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AQUIFER_STORAGE_S3__BUCKETT", "x"),
        ("AQUIFER_STORAGE_COPYING__PART_SIZE_BYTES", "1"),
        ("AQUIFER_STORAGE_BACKEND", "tape"),
    ],
)
def test_misspelt_and_impossible_settings_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """T57: configuration is validated."""
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidConfigurationError, match=name):
        load_settings(StorageSettings, PREFIX)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="part size"):
        StorageOptions(part_size_bytes=64 * MIB, upload_budget_bytes=32 * MIB)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"filesystem.root": ""}, "filesystem.root"),
        ({"chunk.size.bytes": "0"}, "chunk.size.bytes"),
        ({"chunk.size.bytes": "4MiB"}, "chunk.size.bytes"),
        ({"s3.endpoint": "elsewhere"}, "s3.endpoint"),
        ({"chunck.size.bytes": "1"}, "chunck.size.bytes"),
    ],
)
async def test_refused_properties_are_named(
    tmp_path: Path, changes: dict[str, str], named: str
) -> None:
    """SR-4: properties reach the manager as strings."""
    manager = FilesystemRemoteStorageManager()
    with pytest.raises(InvalidConfigurationError) as raised:
        await manager.configure({"filesystem.root": str(tmp_path)} | changes)
    assert raised.value.metadata == {"key": named}
    assert named in raised.value.message


@pytest.mark.parametrize("kind", [S3RemoteStorageManager, FilesystemRemoteStorageManager])
async def test_a_manager_that_is_not_configured_says_so(
    kind: type[RemoteStorageManager],
) -> None:
    with pytest.raises(InvalidConfigurationError, match="configure"):
        [stored async for stored in kind().list_stored_segments()]


async def test_a_missing_property_is_named() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"s3\.bucket is missing"):
        await S3RemoteStorageManager().configure({"s3.endpoint": "127.0.0.1:1"})
