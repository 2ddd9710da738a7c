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
from fixtures.key_rings import new_key_ring


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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"S3__CA_FILE": "/etc/ca.pem"}, "ca_file needs TLS"),
        ({"S3__SECURE": "true", "S3__ENDPOINT": "http://store:9000"}, "secure contradicts"),
        (
            {"COPYING__TIMEOUT_S": "3600", "COPYING__SWEEP_UPLOADS_AFTER_S": "3599"},
            "sweep_uploads_after_s must be at least timeout_s",
        ),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: str
) -> None:
    """T57. An upload in use that is taken for a crashed one's is a copy that never succeeds."""
    for name, value in settings.items():
        monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(InvalidConfigurationError, match=named):
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


def test_codec_and_chunk_size_are_set_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = (
        '{"logs-*": {"codec": "zstd", "chunk_size_bytes": 8388608}, "*-raw": {"zstd_level": 9}}'
    )
    monkeypatch.setenv("AQUIFER_STORAGE_COPYING__TOPICS", topics)
    options = storage_options(load_settings(StorageSettings, PREFIX))
    logs, raw, other = (options.of_topic(name) for name in ("logs-raw", "x-raw", "x"))
    assert (logs.codec, logs.zstd_level, logs.chunk_size_bytes) == ("zstd", 1, 8 * MIB)
    assert (raw.codec, raw.zstd_level, raw.chunk_size_bytes) == ("none", 9, 4 * MIB)
    assert other == StorageOptions().of_topic("x")


@pytest.mark.parametrize(
    "topics",
    ['{"a": {"codec": "lz4"}}', '{"a": {"chunk_size_bytes": 0}}', '{"a": {"size": 1}}', "a", "[]"],
)
def test_settings_of_topics_that_are_refused_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, topics: str
) -> None:
    monkeypatch.setenv("AQUIFER_STORAGE_COPYING__TOPICS", topics)
    with pytest.raises(InvalidConfigurationError, match=r"(?i)copying"):
        load_settings(StorageSettings, PREFIX)


async def test_properties_choose_codec_and_key_ring(tmp_path: Path) -> None:
    manager = FilesystemRemoteStorageManager()
    ring = new_key_ring(tmp_path / "keys")
    await manager.configure(
        {
            "filesystem.root": str(tmp_path / "segments"),
            "codec": "zstd",
            "zstd.level": "3",
            "encryption.key.ring.file": str(ring.path),
        }
    )
    assert manager.storage.encryption == "aes-256-gcm"
    assert manager.storage.options.of_topic("x").zstd_level == 3
    await manager.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("codec", "lz4"), ("zstd.level", "99"), ("encryption.key.ring.file", "nowhere")],
)
async def test_refused_codecs_and_key_rings_stop_the_start(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=value):
        await FilesystemRemoteStorageManager().configure(
            {"filesystem.root": str(tmp_path), name: value}
        )
