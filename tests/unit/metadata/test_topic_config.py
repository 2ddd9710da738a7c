"""Settings of topics: values, combinations, changes (K-4.2, K-7.2, SR-10, SR-11, SR-12)."""

import pytest
from aquifer_core.errors import InvalidConfigurationError
from aquifer_metadata.domain.cluster import ConfigChange, ConfigOperation
from aquifer_metadata.domain.topic_config import apply_changes, check_topic_configs

TIERED = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.5"},
        {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "14"},
        {"remote.log.retention.minutes": "1", "remote.log.retention.bytes": "1"},
        {"aquifer.anything": "goes"},
        TIERED | {"cleanup.policy": "delete"},
        TIERED | {"retention.ms": "1000", "local.retention.ms": "1000"},
        TIERED | {"retention.ms": "1000", "local.retention.ms": "-2"},
        TIERED | {"retention.bytes": "-1", "local.retention.bytes": "-1"},
        TIERED | {"remote.log.copy.disable": "true", "local.retention.ms": "-2"},
        {"local.retention.ms": "5000", "retention.ms": "1000"},
    ],
)
def test_settings_that_can_be_are_taken(configs: dict[str, str]) -> None:
    check_topic_configs(configs)


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({"retention.mss": "1"}, "retention.mss"),
        ({"retention.ms": "-2"}, "retention.ms"),
        ({"retention.ms": "1.5"}, "retention.ms"),
        ({"retention.ms": str(2**63)}, "retention.ms"),
        ({"segment.bytes": str(2**31)}, "segment.bytes"),
        ({"local.retention.bytes": "-3"}, "local.retention.bytes"),
        ({"remote.log.retention.minutes": "0"}, "remote.log.retention.minutes"),
        ({"remote.log.retention.bytes": "-1"}, "remote.log.retention.bytes"),
        ({"remote.storage.enable": "yes"}, "remote.storage.enable"),
        ({"cleanup.policy": "delete,shrink"}, "cleanup.policy"),
        ({"compression.type": "rar"}, "compression.type"),
        ({"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio"),
        ({"message.timestamp.type": "createtime"}, "message.timestamp.type"),
        (TIERED | {"cleanup.policy": "compact"}, "cleanup.policy"),
        (TIERED | {"cleanup.policy": "delete, compact"}, "cleanup.policy"),
        (TIERED | {"retention.ms": "1000", "local.retention.ms": "1001"}, "local.retention.ms"),
        (TIERED | {"retention.bytes": "9", "local.retention.bytes": "-1"}, "local.retention.bytes"),
        (
            TIERED
            | {
                "remote.log.copy.disable": "true",
                "retention.ms": "1000",
                "local.retention.ms": "10",
            },
            "remote.log.copy.disable",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(configs: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        check_topic_configs(configs)
    assert refused.value.metadata == {"key": key}
    assert key in refused.value.message


def test_remote_storage_is_turned_off_only_together_with_its_data() -> None:
    """KIP-950."""
    off = {"remote.storage.enable": "false"}
    check_topic_configs(off)
    check_topic_configs(off | {"remote.log.delete.on.disable": "true"}, before=TIERED)
    for configs in (off, {}):
        with pytest.raises(InvalidConfigurationError, match=r"delete\.on\.disable"):
            check_topic_configs(configs, before=TIERED)


def test_lists_are_appended_to_and_subtracted_from() -> None:
    def changed(value: str, operation: ConfigOperation, given: str) -> str | None:
        change = ConfigChange(key="cleanup.policy", value=given, operation=operation)
        return apply_changes({"cleanup.policy": value}, [change]).get("cleanup.policy")

    assert changed("delete", ConfigOperation.APPEND, "compact,delete") == "delete,compact"
    assert changed("delete,compact", ConfigOperation.SUBTRACT, "compact,none") == "delete"
    assert changed("delete", ConfigOperation.SET, "compact") == "compact"
    assert changed("delete", ConfigOperation.DELETE, "") is None


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange(key="retention.ms", value="1", operation=ConfigOperation.APPEND),
        ConfigChange(key="retention.ms", value=None, operation=ConfigOperation.SET),
    ],
)
def test_changes_that_make_no_sense_are_refused(change: ConfigChange) -> None:
    with pytest.raises(InvalidConfigurationError):
        apply_changes({}, [change])
