"""Which topic configs are refused, and what is made of those that are stored nevertheless."""

import pytest
from aquifer_broker.config.topic_config import effective_log_config, validate_topic_configs
from aquifer_broker.log.log_config import LogConfig
from aquifer_core.errors import InvalidConfigurationError

TIERED = {"remote.storage.enable": "true"}


def validate(configs: dict[str, str | None], before: LogConfig | None = None) -> LogConfig:
    return validate_topic_configs(
        configs, defaults=LogConfig(), remote_storage_available=True, before=before
    )


def refusal(configs: dict[str, str | None], before: LogConfig | None = None) -> str:
    with pytest.raises(InvalidConfigurationError) as caught:
        validate(configs, before)
    return caught.value.message


@pytest.mark.parametrize("policy", ["compact", "delete,compact"])
def test_a_compacted_topic_cannot_be_tiered(policy: str) -> None:
    """SR-12."""
    message = refusal({**TIERED, "cleanup.policy": policy})
    assert "compacted topics are not supported with remote storage" in message


def test_a_stored_topic_that_is_compacted_and_tiered_is_treated_as_not_tiered() -> None:
    """SR-12."""
    config = effective_log_config({**TIERED, "cleanup.policy": "compact"}, LogConfig())
    assert config.compact
    assert not config.remote_storage_enable


def test_a_stored_value_that_cannot_be_read_is_ignored() -> None:
    config = effective_log_config({"retention.ms": "soon", "segment.ms": "5"}, LogConfig())
    assert (config.retention_ms, config.segment_ms) == (LogConfig().retention_ms, 5)


def test_with_copying_paused_nothing_local_may_go_early() -> None:
    """SR-12: every refusal reaches the client as INVALID_CONFIG (K-3.12)."""
    paused = {**TIERED, "remote.log.copy.disable": "true"}
    validate(dict(paused))
    validate({**paused, "local.retention.ms": "5", "retention.ms": "5"})
    message = refusal({**paused, "local.retention.ms": "4", "retention.ms": "5"})
    assert "must be -2 or equal to retention.ms (5)" in message


def test_tiering_is_turned_off_only_together_with_what_is_remote() -> None:
    before = validate(dict(TIERED))
    assert "remote.log.delete.on.disable=true" in refusal(
        {"remote.storage.enable": "false"}, before
    )
    assert "remote.log.delete.on.disable=true" in refusal({}, before)
    validate({"remote.log.delete.on.disable": "true"}, before)


def test_internal_and_throttling_keys_of_kafkas_tools_pass() -> None:
    validate({"leader.replication.throttled.replicas": "*", "internal.segment.bytes": "14"})
