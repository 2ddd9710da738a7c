"""Settings of topics: which exist, which values they take, and which do not go together (K-4.2, SR-10, SR-11, SR-12)."""

import math
from collections.abc import Callable, Mapping, Sequence

from aquifer_core.errors import InvalidConfigurationError

from aquifer_metadata.domain.cluster import ConfigChange, ConfigOperation

REMOTE_STORAGE_ENABLE = "remote.storage.enable"
CLEANUP_POLICY = "cleanup.policy"
COPY_DISABLE = "remote.log.copy.disable"
DELETE_ON_DISABLE = "remote.log.delete.on.disable"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_AS_TOTAL = -2
_OWN_PREFIX = "aquifer."
"""Settings of the suite's own are checked by whoever uses them."""

_Check = Callable[[str], str]
"""Says what is wrong with a value; empty when nothing is."""


def _whole(low: int, high: int = _LONG_MAX) -> _Check:
    def check(value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            return "is not a whole number"
        return "" if low <= number <= high else f"is not between {low} and {high}"

    return check


def _one_of(*values: str) -> _Check:
    return lambda value: "" if value in values else f"is none of {', '.join(values)}"


def _each_of(*values: str) -> _Check:
    def check(value: str) -> str:
        wrong = [item for item in list_items(value) if item not in values]
        return f"has {wrong[0]!r}, which is none of {', '.join(values)}" if wrong else ""

    return check


def _ratio(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    return "" if math.isfinite(number) and 0 <= number <= 1 else "is not between 0 and 1"


def _boolean(value: str) -> str:
    return "" if value.lower() in ("true", "false") else "is neither true nor false"


def _anything(_value: str) -> str:
    return ""


_CHECKS: Mapping[str, _Check] = {
    CLEANUP_POLICY: _each_of("delete", "compact"),
    "compression.gzip.level": _whole(-1, 9),
    "compression.lz4.level": _whole(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _whole(-131_072, 22),
    "delete.retention.ms": _whole(0),
    "file.delete.delay.ms": _whole(0),
    "flush.messages": _whole(1),
    "flush.ms": _whole(0),
    "follower.replication.throttled.replicas": _anything,
    "index.interval.bytes": _whole(0, _INT_MAX),
    "internal.segment.bytes": _whole(1, _INT_MAX),
    "leader.replication.throttled.replicas": _anything,
    "local.retention.bytes": _whole(_AS_TOTAL),
    "local.retention.ms": _whole(_AS_TOTAL),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _whole(0, _INT_MAX),
    "message.downconversion.enable": _boolean,
    "message.format.version": _anything,
    "message.timestamp.after.max.ms": _whole(0),
    "message.timestamp.before.max.ms": _whole(0),
    "message.timestamp.difference.max.ms": _whole(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _whole(0),
    "min.insync.replicas": _whole(1, _INT_MAX),
    "preallocate": _boolean,
    "remote.copy.lag.bytes": _whole(-1),
    "remote.copy.lag.ms": _whole(-1),
    COPY_DISABLE: _boolean,
    DELETE_ON_DISABLE: _boolean,
    "remote.log.retention.bytes": _whole(1),
    "remote.log.retention.minutes": _whole(1),
    REMOTE_STORAGE_ENABLE: _boolean,
    "retention.bytes": _whole(-1),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(14, _INT_MAX),
    "segment.index.bytes": _whole(4, _INT_MAX),
    "segment.jitter.ms": _whole(0),
    "segment.ms": _whole(1),
    UNCLEAN_ELECTION: _boolean,
}

_LISTS = frozenset(
    {
        CLEANUP_POLICY,
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)


def list_items(value: str) -> list[str]:
    """The items of a list value."""
    return [item.strip() for item in value.split(",") if item.strip()]


def is_true(configs: Mapping[str, str], key: str) -> bool:
    """Whether a boolean setting is set to true."""
    return configs.get(key, "").lower() == "true"


def check_topic_configs(
    configs: Mapping[str, str], *, before: Mapping[str, str] | None = None
) -> None:
    """Refuses settings that a topic cannot have.

    Args:
        configs: those set, after the change.
        before: those set until now; None for a new topic.

    Raises:
        InvalidConfigurationError: names key, value and remedy; metadata key `key`.
    """
    for key, value in configs.items():
        check = _anything if key.startswith(_OWN_PREFIX) else _CHECKS.get(key)
        if check is None:
            raise _refused(key, f"{key} is not a topic setting; check its spelling or remove it")
        if problem := check(value):
            raise _refused(key, f"{key}={value} {problem}")
    if is_true(configs, REMOTE_STORAGE_ENABLE):
        _check_tiered(configs)
    elif before is not None and is_true(before, REMOTE_STORAGE_ENABLE):
        _check_disabling(configs)


def apply_changes(
    current: Mapping[str, str], changes: Sequence[ConfigChange], *, lists: frozenset[str] = _LISTS
) -> dict[str, str]:
    """The settings after changes; appending what is there and removing what is not changes nothing.

    Raises:
        InvalidConfigurationError: APPEND or SUBTRACT on a setting that is no list, or a value is missing.
    """
    configs = dict(current)
    for change in changes:
        if change.operation is ConfigOperation.DELETE:
            configs.pop(change.key, None)
            continue
        if change.value is None:
            raise _refused(change.key, f"{change.key} has no value; give one or delete the setting")
        if change.operation is ConfigOperation.SET:
            configs[change.key] = change.value
        elif change.key in lists:
            configs[change.key] = _edited_list(configs.get(change.key, ""), change)
        else:
            raise _refused(change.key, f"{change.key} is no list; set it instead")
    return configs


def _edited_list(value: str, change: ConfigChange) -> str:
    items = list_items(value)
    given = list_items(change.value or "")
    if change.operation is ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in given if item not in items)])
    return ",".join(item for item in items if item not in given)


def _check_tiered(configs: Mapping[str, str]) -> None:
    policy = configs.get(CLEANUP_POLICY, "delete")
    if "compact" in list_items(policy):
        raise _refused(
            CLEANUP_POLICY,
            f"{CLEANUP_POLICY}={policy} with {REMOTE_STORAGE_ENABLE}=true: compacted topics are not supported"
            f" with remote storage; use {CLEANUP_POLICY}=delete or disable remote storage",
        )
    for unit in ("ms", "bytes"):
        _check_local_retention(configs, f"local.retention.{unit}", f"retention.{unit}")
    if is_true(configs, COPY_DISABLE):
        for unit in ("ms", "bytes"):
            _check_copy_disabled(configs, f"local.retention.{unit}", f"retention.{unit}")


def _check_local_retention(configs: Mapping[str, str], local_key: str, total_key: str) -> None:
    local = int(configs.get(local_key, _AS_TOTAL))
    # A total that is not set is the broker's default, which only the broker knows.
    total = int(configs.get(total_key, -1))
    if total < 0 or local == _AS_TOTAL:
        return
    if local == -1 or local > total:
        raise _refused(
            local_key,
            f"{local_key}={local} must not exceed {total_key}={total}, which counts local and remote data",
        )


def _check_copy_disabled(configs: Mapping[str, str], local_key: str, total_key: str) -> None:
    local = configs.get(local_key)
    if local is None or int(local) == _AS_TOTAL or local == configs.get(total_key, local):
        return
    raise _refused(
        COPY_DISABLE,
        f"{COPY_DISABLE}=true needs {local_key} to be -2 or equal to {total_key}, it is {local}",
    )


def _check_disabling(configs: Mapping[str, str]) -> None:
    if not is_true(configs, DELETE_ON_DISABLE):
        raise _refused(
            REMOTE_STORAGE_ENABLE,
            f"{REMOTE_STORAGE_ENABLE} can be turned off only together with {DELETE_ON_DISABLE}=true,"
            " which deletes the topic's remote data",
        )


def _refused(key: str, message: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(message, metadata={"key": key})
