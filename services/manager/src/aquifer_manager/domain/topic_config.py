"""Topic settings that tiering needs, and the retention that follows from them (SR-10, SR-11)."""

from dataclasses import dataclass
from typing import Final

__all__ = ["EffectiveRetention", "RetentionOverrides", "TopicConfig", "effective_retention"]

_MS_PER_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of a topic, resolved against the broker's defaults. Negative retention is unlimited; -2 locally is "as total"."""

    remote_storage_enable: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_retention_minutes: int | None = None
    remote_log_retention_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOverrides:
    """`remote.log.retention.minutes` and `remote.log.retention.bytes` for every topic that sets none itself."""

    minutes: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRetention:
    """What remote segments are judged by; negative: never."""

    retention_ms: int
    retention_bytes: int


def effective_retention(config: TopicConfig, overrides: RetentionOverrides) -> EffectiveRetention:
    """The topic's remote override, else the manager's, else the topic's total retention."""
    minutes = _first(config.remote_log_retention_minutes, overrides.minutes)
    size_bytes = _first(config.remote_log_retention_bytes, overrides.size_bytes)
    return EffectiveRetention(
        retention_ms=config.retention_ms if minutes is None else minutes * _MS_PER_MINUTE,
        retention_bytes=config.retention_bytes if size_bytes is None else size_bytes,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
