import pytest
from aquifer_broker.log.log_config import (
    LogConfig,
    parse_log_config,
    parse_server_defaults,
    validate_log_config,
)
from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.formats.record_batch import TimestampType


def test_topic_keys_override_defaults_and_other_keys_are_left_alone() -> None:
    defaults = LogConfig(retention_ms=5, segment_bytes=1000)

    config = parse_log_config(
        {
            "retention.ms": "-1",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "remote.storage.enable": "TRUE",
            "compression.type": "producer",
        },
        defaults,
    )

    assert config.retention_ms == -1
    assert config.segment_bytes == 1000
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.remote_storage_enable


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("segment.bytes", "13", "from 14 to 2147483647"),
        ("segment.ms", "soon", "whole number"),
        ("retention.bytes", "-2", "from -1"),
        ("local.retention.ms", "-3", "from -2"),
        ("cleanup.policy", "shred", "delete, compact"),
        ("message.timestamp.type", "Never", "CreateTime or LogAppendTime"),
        ("remote.storage.enable", "yes", "true or false"),
    ],
)
def test_a_refused_value_is_answered_with_key_value_and_remedy(
    key: str, value: str, remedy: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        parse_log_config({key: value})

    assert key in refused.value.message
    assert repr(value) in refused.value.message
    assert remedy in refused.value.message
    assert refused.value.metadata == {"key": key, "value": value}


def test_the_finest_unit_of_a_broker_property_wins() -> None:
    config = parse_server_defaults(
        {"log.retention.hours": "2", "log.retention.minutes": "3", "log.roll.hours": "1"}
    )

    assert config.retention_ms == 180_000
    assert config.segment_ms == 3_600_000


def test_local_retention_minus_two_means_as_the_total() -> None:
    config = LogConfig(remote_storage_enable=True, retention_ms=700, retention_bytes=900)

    assert config.effective_local_retention_ms == 700
    assert config.effective_local_retention_bytes == 900


def test_local_retention_does_not_count_while_nothing_is_copied() -> None:
    config = LogConfig(
        remote_storage_enable=True,
        remote_log_copy_disable=True,
        retention_ms=700,
        local_retention_ms=10,
    )

    assert config.effective_local_retention_ms == 700


def test_compacted_topics_are_refused_with_remote_storage() -> None:
    """SR-12"""
    config = LogConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact"}))

    with pytest.raises(
        InvalidConfigurationError, match="compacted topics are not supported with remote storage"
    ):
        validate_log_config(config, remote_storage_available=True)

    assert not config.tiered


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(local_retention_ms=11, retention_ms=10),
        LogConfig(local_retention_ms=-1, retention_ms=10),
        LogConfig(local_retention_bytes=11, retention_bytes=10),
        LogConfig(local_retention_bytes=-1, retention_bytes=10),
    ],
)
def test_local_retention_may_not_exceed_the_total(config: LogConfig) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"local\.retention"):
        validate_log_config(config, remote_storage_available=True)


def test_remote_storage_needs_a_cluster_that_has_it() -> None:
    with pytest.raises(InvalidConfigurationError, match="tiered storage is off"):
        validate_log_config(LogConfig(remote_storage_enable=True), remote_storage_available=False)
