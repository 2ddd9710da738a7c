"""Names of the files and directories of a log (K-6.1)."""

import re
from typing import Final

__all__ = [
    "CLEAN_SHUTDOWN_NAME",
    "DELETED_SUFFIX",
    "LEADER_EPOCH_CHECKPOINT_NAME",
    "LOG_START_OFFSET_CHECKPOINT_NAME",
    "LOG_SUFFIX",
    "META_PROPERTIES_NAME",
    "OFFSET_INDEX_SUFFIX",
    "PARTITION_METADATA_NAME",
    "PRODUCER_SNAPSHOT_SUFFIX",
    "RECOVERY_POINT_CHECKPOINT_NAME",
    "REMOTE_LOG_INDEX_SUFFIX",
    "REMOTE_OFFSET_INDEX_SUFFIX",
    "REMOTE_SEGMENTS_SUFFIX",
    "REMOTE_TIME_INDEX_SUFFIX",
    "REPLICATION_OFFSET_CHECKPOINT_NAME",
    "TIME_INDEX_SUFFIX",
    "TRANSACTION_INDEX_SUFFIX",
    "parse_base_offset",
    "parse_partition_directory",
    "partition_directory",
    "segment_file_name",
]

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
REMOTE_LOG_INDEX_SUFFIX: Final = ".remoteLogIndex"
REMOTE_OFFSET_INDEX_SUFFIX: Final = ".remoteOffsetIndex"
REMOTE_TIME_INDEX_SUFFIX: Final = ".remoteTimeIndex"
REMOTE_SEGMENTS_SUFFIX: Final = ".remoteSegments"

LEADER_EPOCH_CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"
LOG_START_OFFSET_CHECKPOINT_NAME: Final = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT_NAME: Final = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT_NAME: Final = "replication-offset-checkpoint"
META_PROPERTIES_NAME: Final = "meta.properties"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"

_FILE_NAME: Final = re.compile(r"([0-9]{20})\.\w", re.ASCII)
_DIRECTORY_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_PARTITION: Final = (1 << 31) - 1


def segment_file_name(offset: int, suffix: str) -> str:
    """Return the name of a file: 20 digits of offset, then the suffix with its dot.

    The offset is the segment's base offset; for a producer snapshot it is the offset after the
    records that the snapshot covers.

    Raises:
        ValueError: The offset is negative.
    """
    if offset < 0:
        raise ValueError(f"offset {offset} is negative")
    return f"{offset:020d}{suffix}"


def parse_base_offset(name: str) -> int | None:
    """Return the offset that a file name starts with; none when it is not a file of a segment."""
    match = _FILE_NAME.match(name)
    if match is None or int(match[1]) > _MAX_OFFSET:
        return None
    return int(match[1])


def partition_directory(topic: str, partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return topic and partition of a directory name.

    None when it is not the directory of a live partition, as with `...-delete` and `...-future`.
    """
    match = _DIRECTORY_NAME.fullmatch(name)
    if match is None or int(match[2]) > _MAX_PARTITION:
        return None
    return match[1], int(match[2])
