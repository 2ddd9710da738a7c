"""Keys of tiered storage (SR-1 to SR-11, K-4.1)."""

from typing import Final

from aquifer_broker.config.definitions import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    at_least,
    between,
    define,
    not_empty,
)

__all__ = [
    "GRPC_METADATA_MANAGER",
    "GRPC_STORAGE_MANAGER",
    "METADATA_PREFIX",
    "REMOTE_DEFINITIONS",
    "STORAGE_PREFIX",
]

STORAGE_PREFIX: Final = "remote.log.storage."
METADATA_PREFIX: Final = "remote.log.metadata."

GRPC_STORAGE_MANAGER: Final = "aquifer_client.GrpcRemoteStorageManager"
"""The RemoteStorageManager that shipped configurations name (SR-2)."""
GRPC_METADATA_MANAGER: Final = "aquifer_client.GrpcRemoteLogMetadataManager"
"""The RemoteLogMetadataManager that shipped configurations name (SR-3)."""

_B, _S, _I, _L, _CLASS = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.CLASS,
)


REMOTE_DEFINITIONS: Final = (
    define(
        "remote.log.storage.enable",
        _B,
        False,
        "Whether topics can be tiered (SR-1). False: no plugin, client or connection of tiering exists.",
        aliases=("remote.log.storage.system.enable",),
    ),
    define(
        "remote.log.storage.manager.class.name",
        _CLASS,
        None,
        "Dotted path of the RemoteStorageManager; mandatory when remote storage is enabled (SR-2).",
        validator=not_empty,
    ),
    define(
        "remote.log.metadata.manager.class.name",
        _CLASS,
        None,
        f"Dotted path of the RemoteLogMetadataManager (SR-3), for example {GRPC_METADATA_MANAGER}.",
        validator=not_empty,
    ),
    define(
        "remote.log.manager.thread.pool.size",
        _I,
        10,
        "Concurrent runs of copy and expiration tasks (SR-6).",
        validator=between(1, 1000),
        counts_elsewhere="AQUIFER_MANAGER_THREAD_POOL_SIZE of the manager",
    ),
    define(
        "remote.log.manager.task.interval.ms",
        _L,
        30_000,
        "Time between two runs of a partition's tasks (SR-7).",
        validator=between(1, INT_MAX),
        counts_elsewhere="AQUIFER_MANAGER_TASK_INTERVAL_MS of the manager",
    ),
    define(
        "remote.log.manager.task.retry.backoff.ms",
        _L,
        500,
        "First pause after a failed run.",
        validator=at_least(1),
        counts_elsewhere="AQUIFER_MANAGER_TASK_RETRY_BACKOFF_MS of the manager",
    ),
    define(
        "remote.log.manager.task.retry.backoff.max.ms",
        _L,
        30_000,
        "Longest pause after failed runs.",
        validator=at_least(1),
        counts_elsewhere="AQUIFER_MANAGER_TASK_RETRY_BACKOFF_MAX_MS of the manager",
    ),
    define(
        "remote.log.reader.threads",
        _I,
        10,
        "Tiered reads at once (SR-8).",
        validator=between(1, 1000),
        counts_elsewhere="AQUIFER_MANAGER_READER_THREADS of the manager",
    ),
    define(
        "remote.log.reader.max.pending.tasks",
        _I,
        100,
        "Tiered reads that may wait; beyond, fetches are answered empty and throttled (SR-9).",
        validator=between(1, 100_000),
    ),
    define(
        "remote.log.retention.minutes",
        _I,
        None,
        "Retention time of remote segments; unset: the topic's retention.ms (SR-10).",
        validator=between(1, INT_MAX),
    ),
    define(
        "remote.log.retention.bytes",
        _L,
        None,
        "Retention size of remote segments; unset: the topic's retention.bytes (SR-11).",
        validator=between(1, LONG_MAX),
    ),
    define(
        "remote.log.index.file.cache.total.size.bytes",
        _L,
        1 << 30,
        "Disk space of the remote index cache.",
        validator=at_least(1),
        counts_elsewhere="AQUIFER_MANAGER_INDEX_CACHE_BYTES of the manager",
    ),
    define(
        "remote.log.metadata.custom.metadata.max.bytes",
        _I,
        128,
        "Longest custom metadata of a segment. No effect: what a storage manager gives is kept.",
        validator=at_least(0),
    ),
    define(
        "remote.fetch.max.wait.ms",
        _I,
        500,
        "Longest wait of a fetch for tiered records.",
        validator=at_least(1),
        dynamic=True,
    ),
    define(
        "remote.list.offsets.request.timeout.ms",
        _L,
        30_000,
        "Longest wait of an offset look-up by time in tiered data.",
        validator=at_least(1),
        dynamic=True,
    ),
    define(
        "remote.log.manager.copy.max.bytes.per.second",
        _L,
        LONG_MAX,
        "Quota of copying.",
        validator=at_least(1),
        counts_elsewhere="AQUIFER_MANAGER_COPY_MAX_BYTES_PER_SECOND of the manager",
    ),
    define(
        "remote.log.manager.fetch.max.bytes.per.second",
        _L,
        LONG_MAX,
        "Quota of tiered reads.",
        validator=at_least(1),
        counts_elsewhere="AQUIFER_MANAGER_FETCH_MAX_BYTES_PER_SECOND of the manager",
    ),
    define(
        "log.local.retention.ms",
        _L,
        -2,
        "Local retention time of tiered topics; -2: as the total one.",
        validator=at_least(-2),
        dynamic=True,
    ),
    define(
        "log.local.retention.bytes",
        _L,
        -2,
        "Local retention size of tiered topics; -2: as the total one.",
        validator=at_least(-2),
        dynamic=True,
    ),
)
"""Other keys under `STORAGE_PREFIX` and `METADATA_PREFIX` are the plugins' and go to them untouched (SR-4, SR-5)."""
