"""Role classes by name (SR-2, SR-3), settings (SR-6 to SR-9)."""

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ports import RemoteStorageManager
from aquifer_manager.adapters.plugin import load_role
from aquifer_manager.settings import ENV_PREFIX, ManagerSettings, RoleSettings
from aquifer_rpc.environment import load_settings

KEY = "remote.log.storage.manager.class.name"


def test_a_role_is_made_from_its_dotted_path() -> None:
    """SR-2."""
    path = "aquifer_core.fakes.remote_storage.InMemoryRemoteStorageManager"
    assert isinstance(load_role(path, RemoteStorageManager, KEY), RemoteStorageManager)


@pytest.mark.parametrize(
    ("class_name", "message"),
    [
        ("", f"{KEY} is missing"),
        ("Nothing", "give a dotted path"),
        ("no.such.module.Thing", "cannot be imported: No module named 'no'"),
        ("aquifer_core.ports.Nothing", "cannot be imported"),
        ("aquifer_core.ports.Clock", "is not a RemoteStorageManager"),
        ("aquifer_core.ports.MappingProxyType", "cannot be imported"),
        ("aquifer_core.ports.RemoteStorageManager", "cannot be made without arguments"),
    ],
)
def test_a_role_that_cannot_be_had_is_refused_in_one_line(class_name: str, message: str) -> None:
    """SR-2: key missing, cannot be imported (with the cause), or not of the role."""
    with pytest.raises(InvalidConfigurationError) as raised:
        load_role(class_name, RemoteStorageManager, KEY)
    assert message in raised.value.message
    assert "\n" not in raised.value.message
    assert raised.value.metadata == {"key": KEY}


def test_defaults_are_kafkas() -> None:
    """SR-6, SR-7, SR-8, SR-9, SR-18, SR-34."""
    settings = ManagerSettings()
    assert settings.thread_pool_size == 10
    assert settings.task_interval_ms == 30_000
    assert settings.reader_threads == 10
    assert settings.reader_max_pending_tasks == 100
    assert settings.task_retry_backoff_ms == 500
    assert settings.task_retry_backoff_max_ms == 30_000
    assert settings.task_retry_jitter == 0.2
    assert settings.index_cache_bytes == 1 << 30
    assert (settings.retention_minutes, settings.retention_bytes) == (None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("THREAD_POOL_SIZE", "0"),
        ("THREAD_POOL_SIZE", "1001"),
        ("TASK_INTERVAL_MS", "0"),
        ("TASK_INTERVAL_MS", "2147483648"),
        ("READER_THREADS", "1001"),
        ("READER_MAX_PENDING_TASKS", "100001"),
        ("RETENTION_MINUTES", "0"),
        ("RETENTION_MINUTES", "2147483648"),
    ],
)
def test_values_out_of_range_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """SR-6 to SR-10."""
    monkeypatch.setenv(ENV_PREFIX + name, value)
    with pytest.raises(InvalidConfigurationError, match=ENV_PREFIX + name):
        load_settings(ManagerSettings, ENV_PREFIX)


def test_properties_of_a_role_are_passed_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """SR-4, SR-5."""
    monkeypatch.setenv(f"{ENV_PREFIX}STORAGE__CLASS_NAME", "some.Class")
    monkeypatch.setenv(f"{ENV_PREFIX}STORAGE__ENDPOINTS", "a:1,b:2")
    monkeypatch.setenv(f"{ENV_PREFIX}STORAGE__PROPERTIES", '{"deadline.ms": "007"}')
    storage = load_settings(ManagerSettings, ENV_PREFIX).storage
    assert storage.class_name == "some.Class"
    assert storage.configs() == {"endpoints": "a:1,b:2", "deadline.ms": "007"}
    assert RoleSettings(class_name="x").configs() == {}
