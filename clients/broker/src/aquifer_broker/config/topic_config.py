"""Topic configs: what is known, what a value means, what is refused (K-4.2, K-3.12, SR-12)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import structlog
from aquifer_core.errors import InvalidConfigurationError

from aquifer_broker.config.definitions import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Definition,
    at_least,
    between,
    define,
    one_of,
)
from aquifer_broker.log.log_config import LogConfig, parse_log_config, validate_log_config

__all__ = [
    "SERVER_SYNONYMS",
    "TOPIC_DEFINITIONS",
    "effective_log_config",
    "validate_topic_configs",
]

logger = structlog.get_logger(__name__)

_B, _S, _I, _L, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)

_TABLE: Final = (
    define("cleanup.policy", _LIST, ("delete",), "delete, compact or both."),
    define(
        "compression.type",
        _S,
        "producer",
        "Codec of stored records; batches are stored as the producer made them.",
        validator=one_of("producer"),
    ),
    define(
        "delete.retention.ms",
        _L,
        86_400_000,
        "Time a tombstone is kept in a compacted topic.",
        validator=at_least(0),
    ),
    define(
        "file.delete.delay.ms",
        _L,
        60_000,
        "Time between dropping a segment and deleting its files.",
    ),
    define("flush.messages", _L, LONG_MAX, "Records after which the log is flushed to disk."),
    define("flush.ms", _L, LONG_MAX, "Time after which the log is flushed to disk."),
    define("index.interval.bytes", _I, 4096, "Bytes of log between two index entries."),
    define(
        "local.retention.bytes", _L, -2, "Local retention size when tiered; -2: as retention.bytes."
    ),
    define("local.retention.ms", _L, -2, "Local retention time when tiered; -2: as retention.ms."),
    define(
        "max.compaction.lag.ms",
        _L,
        LONG_MAX,
        "Longest time before a record may be compacted.",
        validator=at_least(1),
    ),
    define("max.message.bytes", _I, 1_048_588, "Largest record batch."),
    define(
        "message.timestamp.after.max.ms",
        _L,
        3_600_000,
        "How far a timestamp may lie in the future.",
    ),
    define(
        "message.timestamp.before.max.ms", _L, LONG_MAX, "How far a timestamp may lie in the past."
    ),
    define("message.timestamp.type", _S, "CreateTime", "Who sets timestamps."),
    define(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        0.5,
        "Share of uncompacted log that starts a compaction.",
        validator=between(0, 1),
    ),
    define(
        "min.compaction.lag.ms",
        _L,
        0,
        "Least time before a record may be compacted.",
        validator=at_least(0),
    ),
    define(
        "min.insync.replicas",
        _I,
        1,
        "Replicas that must have a record before acks=all is answered.",
    ),
    define("preallocate", _B, False, "Whether segment files get their size when they are made."),
    define("remote.log.copy.disable", _B, False, "Whether copying to remote storage is paused."),
    define(
        "remote.log.delete.on.disable",
        _B,
        False,
        "Whether disabling tiering deletes what is remote.",
    ),
    define(
        "remote.log.retention.bytes",
        _L,
        None,
        "Retention size of remote segments; unset: retention.bytes (SR-11).",
        validator=between(1, LONG_MAX),
    ),
    define(
        "remote.log.retention.minutes",
        _I,
        None,
        "Retention time of remote segments; unset: retention.ms (SR-10).",
        validator=between(1, INT_MAX),
    ),
    define("remote.storage.enable", _B, False, "Whether the topic is tiered."),
    define(
        "retention.bytes",
        _L,
        -1,
        "Total retention size of a partition, local and remote; -1: unlimited.",
    ),
    define(
        "retention.ms", _L, 604_800_000, "Total retention time, local and remote; -1: unlimited."
    ),
    define("segment.bytes", _I, 1 << 30, "Size at which a segment is rolled."),
    define(
        "segment.index.bytes",
        _I,
        10 << 20,
        "Size at which an index is full and its segment is rolled.",
    ),
    define("segment.jitter.ms", _L, 0, "Largest random amount taken off segment.ms."),
    define("segment.ms", _L, 604_800_000, "Age at which a segment is rolled."),
    define(
        "unclean.leader.election.enable",
        _B,
        False,
        "Whether a replica that is not in sync may become leader.",
    ),
)

TOPIC_DEFINITIONS: Final[Mapping[str, Definition]] = {each.name: each for each in _TABLE}
"""Every topic config, by name; ranges that the log checks itself are in `log.log_config`."""

SERVER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.type": ("compression.type",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.insync.replicas": ("min.insync.replicas",),
    "remote.log.retention.bytes": ("remote.log.retention.bytes",),
    "remote.log.retention.minutes": ("remote.log.retention.minutes",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
"""Broker properties that give a topic config its default, the strongest first."""

# Internal names of Kafka's own tests and tools are let through.
_ALLOWED_PREFIXES: Final = (
    "internal.",
    "leader.replication.throttled.",
    "follower.replication.throttled.",
)


def validate_topic_configs(
    configs: Mapping[str, str | None],
    *,
    defaults: LogConfig,
    remote_storage_available: bool,
    before: LogConfig | None = None,
) -> LogConfig:
    """Checks the configs of a topic as they would be after a create or alter.

    Args:
        configs: everything the topic would set; None: not set.
        before: what was in force; None: the topic is new.

    Raises:
        InvalidConfigurationError: a key is unknown, a value or a combination is refused.
    """
    given = {key: value for key, value in configs.items() if value is not None}
    for key, value in given.items():
        definition = TOPIC_DEFINITIONS.get(key)
        if definition is None:
            if key.startswith(_ALLOWED_PREFIXES):
                continue
            raise InvalidConfigurationError(
                f"Unknown topic config name: {key}", metadata={"key": key, "value": value}
            )
        definition.parse(value)
    config = parse_log_config(given, defaults)
    validate_log_config(config, remote_storage_available=remote_storage_available)
    _validate_copy_disabled(config)
    if before is not None:
        _validate_disabling(config, before)
    return config


def effective_log_config(configs: Mapping[str, str], defaults: LogConfig) -> LogConfig:
    """The configuration of a topic's logs. Never raises: what is stored must not keep a log closed.

    A compacted topic with remote storage is warned about and treated as not tiered (SR-12); where only the broker's default
    would compact it, it stays tiered, because what is remote would be gone with the tiering. A value that cannot
    be read is warned about and its default taken.
    """
    config = defaults
    for key, value in configs.items():
        try:
            config = parse_log_config({key: value}, config)
        except InvalidConfigurationError as error:
            logger.warning("topic_config_ignored", key=key, value=value, error=str(error))
    if config.remote_storage_enable and config.compact and "cleanup.policy" not in configs:
        logger.warning("tiered_topic_not_compacted", configs=dict(configs))
        return replace(config, cleanup_policy=LogConfig().cleanup_policy)
    if config.remote_storage_enable and config.compact:
        logger.warning("compacted_topic_not_tiered", configs=dict(configs))
        config = replace(config, remote_storage_enable=False)
    return config


def _validate_copy_disabled(config: LogConfig) -> None:
    """With copying paused nothing local may go before its time (K-3.12)."""
    if not (config.remote_storage_enable and config.remote_log_copy_disable):
        return
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("ms", config.local_retention_ms, config.retention_ms),
        ("bytes", config.local_retention_bytes, config.retention_bytes),
    )
    for unit, local, total in pairs:
        if local not in (-2, total):
            raise InvalidConfigurationError(
                f"local.retention.{unit}={local} is not valid: with remote.log.copy.disable=true it must be"
                f" -2 or equal to retention.{unit} ({total})",
                metadata={"key": f"local.retention.{unit}", "value": str(local)},
            )


def _validate_disabling(config: LogConfig, before: LogConfig) -> None:
    """Tiering is only turned off together with the remote data (K-3.12)."""
    turned_off = before.remote_storage_enable and not config.remote_storage_enable
    if turned_off and not config.remote_log_delete_on_disable:
        raise InvalidConfigurationError(
            "remote.storage.enable='false' is not valid: it is disabled only together with"
            " remote.log.delete.on.disable=true, which deletes what is remote",
            metadata={"key": "remote.storage.enable", "value": "false"},
        )
