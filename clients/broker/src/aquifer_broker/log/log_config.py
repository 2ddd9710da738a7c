"""Topic configuration as the log sees it, built from Kafka's strings (K-4.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.formats.record_batch import TimestampType

__all__ = ["LogConfig", "parse_log_config", "parse_server_defaults", "validate_log_config"]

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_POLICIES: Final = frozenset({"delete", "compact"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Effective configuration of one log; names are Kafka's topic keys in snake case.

    -1 in a retention means unlimited, -2 in a local retention means "as the total".
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_log_retention_minutes: int | None = None
    remote_log_retention_bytes: int | None = None

    @property
    def compact(self) -> bool:
        """Whether the topic is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def tiered(self) -> bool:
        """Whether the topic is tiered; a compacted one never is (SR-12)."""
        return self.remote_storage_enable and not self.compact

    @property
    def copied_to_remote(self) -> bool:
        """Whether new segments are copied, so that local retention applies (K-3.5)."""
        return self.tiered and not self.remote_log_copy_disable

    @property
    def effective_local_retention_ms(self) -> int:
        """Local retention time with -2 resolved; the total one when nothing is copied."""
        if not self.copied_to_remote or self.local_retention_ms == -2:
            return self.retention_ms
        return self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """Local retention size with -2 resolved; the total one when nothing is copied."""
        if not self.copied_to_remote or self.local_retention_bytes == -2:
            return self.retention_bytes
        return self.local_retention_bytes


def _refusal(key: str, value: str, remedy: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"{key}={value!r} is not valid: {remedy}", metadata={"key": key, "value": value}
    )


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        remedy = f"give a whole number from {low} to {high}"
        try:
            number = int(value.strip())
        except ValueError as error:
            raise _refusal(key, value, remedy) from error
        if not low <= number <= high:
            raise _refusal(key, value, remedy)
        return number

    return parse


def _boolean(key: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise _refusal(key, value, "give true or false")
    return text == "true"


def _timestamp_type(key: str, value: str) -> TimestampType:
    kinds = {
        "CreateTime": TimestampType.CREATE_TIME,
        "LogAppendTime": TimestampType.LOG_APPEND_TIME,
    }
    if value.strip() not in kinds:
        raise _refusal(key, value, "give CreateTime or LogAppendTime")
    return kinds[value.strip()]


def _policy(key: str, value: str) -> frozenset[str]:
    policies = frozenset(part.strip() for part in value.split(",") if part.strip())
    if not policies <= _POLICIES:
        raise _refusal(key, value, "give delete, compact, or both separated by a comma")
    return policies


_PARSERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    # Kafka 4.1 and later refuse less than 1 MiB; smaller segments stay possible, as up to 4.0.
    "segment.bytes": _integer(14, _INT_MAX),
    "segment.ms": _integer(1, _LONG_MAX),
    "segment.jitter.ms": _integer(0, _LONG_MAX),
    "segment.index.bytes": _integer(4, _INT_MAX),
    "index.interval.bytes": _integer(0, _INT_MAX),
    "retention.ms": _integer(-1, _LONG_MAX),
    "retention.bytes": _integer(-1, _LONG_MAX),
    "local.retention.ms": _integer(-2, _LONG_MAX),
    "local.retention.bytes": _integer(-2, _LONG_MAX),
    "max.message.bytes": _integer(0, _INT_MAX),
    "message.timestamp.type": _timestamp_type,
    "message.timestamp.before.max.ms": _integer(0, _LONG_MAX),
    "message.timestamp.after.max.ms": _integer(0, _LONG_MAX),
    "flush.messages": _integer(1, _LONG_MAX),
    "flush.ms": _integer(0, _LONG_MAX),
    "file.delete.delay.ms": _integer(0, _LONG_MAX),
    "min.insync.replicas": _integer(1, _INT_MAX),
    "cleanup.policy": _policy,
    "remote.storage.enable": _boolean,
    "remote.log.copy.disable": _boolean,
    "remote.log.delete.on.disable": _boolean,
    "remote.log.retention.minutes": _integer(1, _INT_MAX),
    "remote.log.retention.bytes": _integer(1, _LONG_MAX),
}

# Broker properties that give the topic defaults; the first one present wins. The number is the
# factor from the property's unit to the topic key's.
_SERVER_KEYS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "retention.bytes": (("log.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "remote.log.retention.minutes": (("remote.log.retention.minutes", 1),),
    "remote.log.retention.bytes": (("remote.log.retention.bytes", 1),),
}


def parse_log_config(configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
    """Builds the configuration of a log from topic configs; keys that the log does not use are left alone.

    Args:
        configs: Topic key -> value, as the topic sets them.
        defaults: What applies where the topic sets nothing.

    Raises:
        InvalidConfigurationError: A value is malformed or out of range; the text names key, value and remedy.
    """
    changes = {
        key.replace(".", "_"): _PARSERS[key](key, value)
        for key, value in configs.items()
        if key in _PARSERS
    }
    return replace(defaults or LogConfig(), **changes)


def parse_server_defaults(properties: Mapping[str, str]) -> LogConfig:
    """Builds the defaults of all topics from broker properties (`log.segment.bytes`, `log.retention.hours`, ...).

    Raises:
        InvalidConfigurationError: As `parse_log_config`; the text names the broker property.
    """
    changes: dict[str, Any] = {}
    for topic_key, names in _SERVER_KEYS.items():
        for name, factor in names:
            if name not in properties:
                continue
            parsed = _PARSERS[topic_key](name, properties[name])
            scaled = parsed * factor if factor != 1 and parsed >= 0 else parsed
            changes[topic_key.replace(".", "_")] = scaled
            break
    return LogConfig(**changes)


def validate_log_config(config: LogConfig, *, remote_storage_available: bool) -> None:
    """Checks what only shows in combination; called when a topic is created or altered, not when it is loaded.

    Raises:
        InvalidConfigurationError: The combination is refused (K-3.12, SR-12).
    """
    if config.remote_storage_enable:
        _validate_remote(config, remote_storage_available)
    for unit, local, total in (
        ("ms", config.local_retention_ms, config.retention_ms),
        ("bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        _validate_local_retention(unit, local, total)


def _validate_remote(config: LogConfig, available: bool) -> None:
    if config.compact:
        policy = ",".join(sorted(config.cleanup_policy))
        raise _refusal(
            "remote.storage.enable",
            "true",
            f"compacted topics are not supported with remote storage (cleanup.policy={policy}); "
            "set cleanup.policy=delete or leave remote storage off",
        )
    if not available:
        raise _refusal(
            "remote.storage.enable",
            "true",
            "tiered storage is off on this cluster; set remote.log.storage.enable=true on the brokers",
        )


def _validate_local_retention(unit: str, local: int, total: int) -> None:
    if local == -2 or total == -1:
        return
    key = f"local.retention.{unit}"
    if local == -1:
        raise _refusal(key, "-1", f"it may be unlimited only if retention.{unit} ({total}) is")
    if local > total:
        raise _refusal(key, str(local), f"it must not exceed retention.{unit} ({total})")
