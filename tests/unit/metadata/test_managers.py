"""The manager that a node plugs in by its dotted path: its properties."""

import builders
import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_metadata.adapters.managers import SqlRemoteLogMetadataManager


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({}, "dsn"),
        ({"dsn": "postgresql://x", "dns": "y"}, "dns"),
        ({"dsn": "postgresql://x", "pool.size": "0"}, "pool.size"),
        ({"dsn": "postgresql://x", "lock.timeout.ms": "soon"}, "lock.timeout.ms"),
        ({"dsn": "postgresql://x", "auto.migrate": "maybe"}, "auto.migrate"),
    ],
)
async def test_properties_that_cannot_be_are_refused_by_name(
    configs: dict[str, str], key: str
) -> None:
    """SR-5."""
    with pytest.raises(InvalidConfigurationError) as refused:
        await SqlRemoteLogMetadataManager().configure(configs)
    assert refused.value.metadata == {"key": key}


async def test_before_it_is_configured_every_question_says_so() -> None:
    manager = SqlRemoteLogMetadataManager()
    with pytest.raises(InvalidConfigurationError, match="not configured yet"):
        await manager.highest_offset_for_epoch(builders.topic_id_partition(), 0)
    await manager.close()
    await manager.close()
