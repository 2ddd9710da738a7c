"""Keys of local logs: the defaults of topic configs and what the log manager does."""

from typing import Final

from aquifer_broker.config.definitions import (
    LONG_MAX,
    ConfigType,
    at_least,
    define,
    not_empty,
    one_of,
)

__all__ = ["LOG_DEFINITIONS"]

_S, _I, _L, _LIST = (ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST)

LOG_DEFINITIONS: Final = (
    define(
        "log.dirs",
        _LIST,
        ("/tmp/kafka-logs",),
        "Directories of the logs, separated by commas.",
        aliases=("log.dir",),
        validator=not_empty,
    ),
    define(
        "log.segment.bytes",
        _I,
        1 << 30,
        "Size at which a segment is rolled.",
        validator=at_least(14),
        dynamic=True,
    ),
    define(
        "log.roll.ms",
        _L,
        None,
        "Age at which a segment is rolled; unset: log.roll.hours.",
        validator=at_least(1),
        dynamic=True,
    ),
    define(
        "log.roll.hours",
        _I,
        168,
        "Age in hours at which a segment is rolled.",
        validator=at_least(1),
    ),
    define(
        "log.roll.jitter.ms",
        _L,
        None,
        "Largest random amount taken off the roll age.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "log.roll.jitter.hours", _I, 0, "As log.roll.jitter.ms, in hours.", validator=at_least(0)
    ),
    define(
        "log.index.size.max.bytes",
        _I,
        10 << 20,
        "Size at which an index is full and its segment is rolled.",
        validator=at_least(4),
        dynamic=True,
    ),
    define(
        "log.index.interval.bytes",
        _I,
        4096,
        "Bytes of log between two index entries.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "log.retention.ms",
        _L,
        None,
        "Total retention time, -1 for unlimited; unset: log.retention.minutes.",
        validator=at_least(-1),
        dynamic=True,
    ),
    define(
        "log.retention.minutes",
        _I,
        None,
        "As log.retention.ms, in minutes; unset: log.retention.hours.",
        validator=at_least(-1),
    ),
    define(
        "log.retention.hours", _I, 168, "As log.retention.ms, in hours.", validator=at_least(-1)
    ),
    define(
        "log.retention.bytes",
        _L,
        -1,
        "Total retention size of a partition, -1 for unlimited.",
        validator=at_least(-1),
        dynamic=True,
    ),
    define(
        "log.retention.check.interval.ms",
        _L,
        300_000,
        "Time between two retention passes.",
        validator=at_least(1),
    ),
    define("log.cleanup.policy", _LIST, ("delete",), "delete, compact or both.", dynamic=True),
    define(
        "log.message.timestamp.type",
        _S,
        "CreateTime",
        "Who sets timestamps.",
        validator=one_of("CreateTime", "LogAppendTime"),
        dynamic=True,
    ),
    define(
        "log.message.timestamp.before.max.ms",
        _L,
        LONG_MAX,
        "How far a timestamp may lie in the past.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "log.message.timestamp.after.max.ms",
        _L,
        3_600_000,
        "How far a timestamp may lie in the future.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "log.flush.interval.messages",
        _L,
        LONG_MAX,
        "Records after which a log is flushed to disk.",
        validator=at_least(1),
        dynamic=True,
    ),
    define(
        "log.flush.interval.ms",
        _L,
        None,
        "Time after which a log is flushed to disk; unset: left to the operating system.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "log.flush.scheduler.interval.ms",
        _L,
        LONG_MAX,
        "Time between two looks for logs to flush.",
        validator=at_least(1),
    ),
    define(
        "log.flush.offset.checkpoint.interval.ms",
        _I,
        60_000,
        "Time between two writes of the recovery checkpoints.",
        validator=at_least(1),
    ),
    define(
        "log.segment.delete.delay.ms",
        _L,
        60_000,
        "Time between dropping a segment and deleting its files.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "message.max.bytes",
        _I,
        1_048_588,
        "Largest record batch.",
        validator=at_least(0),
        dynamic=True,
    ),
    define(
        "num.recovery.threads.per.data.dir",
        _I,
        2,
        "Logs recovered at once per directory after a crash. No effect: they are recovered one after the other.",
        validator=at_least(1),
    ),
    define(
        "producer.id.expiration.ms",
        _I,
        86_400_000,
        "Time after which the state of a silent producer is forgotten.",
        validator=at_least(1),
    ),
)
