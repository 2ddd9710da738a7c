from pathlib import Path

import pytest
from aquifer_client import GrpcRemoteStorageManager, RemoteRoleConfig
from aquifer_core.errors import InvalidConfigurationError


def test_properties_are_read_as_strings_and_defaults_hold() -> None:
    """SR-4, SR-5: the properties below a role's prefix reach its implementation as they are."""
    config = RemoteRoleConfig.parse({"endpoints": "a:1, b:2,", "broker.id": "1", "log.dir": "/x"})

    assert config.endpoints == ("a:1", "b:2")
    assert config.deadline_s == 30
    assert config.stream_deadline_s == 600
    assert config.tls is None


def test_everything_can_be_set() -> None:
    config = RemoteRoleConfig.parse(
        {
            "endpoints": "a:1",
            "deadline.ms": "1500",
            "stream.deadline.ms": "2500",
            "max.attempts": "2",
            "tls.ca.file": "/ca.pem",
            "tls.server.name": "storage",
        }
    )

    assert (config.deadline_s, config.stream_deadline_s) == (1.5, 2.5)
    assert config.tls is not None
    assert config.tls.ca_file == Path("/ca.pem")
    settings = config.client_settings()
    assert (settings.deadline_s, settings.max_attempts) == (1.5, 2)


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({}, "endpoints"),
        ({"endpoints": " , "}, "endpoints"),
        ({"endpoints": "a"}, "endpoints"),
        ({"endpoints": "a:1,b:99999"}, "endpoints"),
        ({"endpoints": "a:1", "endpoint": "b:1"}, "endpoint"),
        ({"endpoints": "a:1", "tls.certificate.file": "/c.pem"}, "tls.key.file"),
        ({"endpoints": "a:1", "tls.key.file": "/c.key"}, "tls.certificate.file"),
        ({"endpoints": "a:1", "deadline.ms": "9" * 20}, "deadline.ms"),
        ({"endpoints": "a:1", "deadline.ms": "soon"}, "deadline.ms"),
        ({"endpoints": "a:1", "max.attempts": "0"}, "max.attempts"),
        ({"endpoints": "a:1", "deadline.ms": "-5"}, "deadline.ms"),
    ],
)
def test_what_is_refused_is_named_by_key(configs: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        RemoteRoleConfig.parse(configs)

    assert refused.value.metadata == {"key": key}
    assert key in refused.value.message


async def test_a_role_is_configured_once_and_before_use() -> None:
    manager = GrpcRemoteStorageManager()
    with pytest.raises(InvalidConfigurationError, match="configure first"):
        await anext(aiter(manager.list_stored_segments()))
    await manager.configure({"endpoints": "127.0.0.1:1"})
    with pytest.raises(InvalidConfigurationError, match="already"):
        await manager.configure({"endpoints": "127.0.0.1:1"})
    await manager.close()
    await manager.close()
