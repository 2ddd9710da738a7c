"""Keys of the objects of a segment."""

import re
from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import ErrorReason, InvalidRequestError
from aquifer_core.segment import RemoteLogSegmentMetadata

LOG_SUFFIX: Final = ".log"
INDEXES_SUFFIX: Final = ".indexes"
MANIFEST_SUFFIX: Final = ".manifest"

# Kafka's rule for topic names; it also keeps every key one level deep where it says so.
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_BASE: Final = r"[a-zA-Z0-9._-]{1,249}-[a-zA-Z0-9_-]{22}/[0-9]+/[0-9]{20}-[a-zA-Z0-9_-]{22}"
_LOG: Final = re.compile(rf"{_BASE}\.log")
_ANY: Final = re.compile(rf"({_BASE})\.(?:log|indexes|manifest)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeys:
    """Keys of the three objects of one segment."""

    log: str
    indexes: str
    manifest: str

    @property
    def all(self) -> tuple[str, str, str]:
        """Every key, in the order of deletion: without its manifest a segment is not there."""
        return self.manifest, self.indexes, self.log


class ObjectKeys:
    """Makes keys under the store's prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def of(self, metadata: RemoteLogSegmentMetadata) -> SegmentKeys:
        """Return the keys of a segment.

        Raises:
            InvalidRequestError: the topic name is not legal in Kafka.
        """
        partition = metadata.topic_id_partition
        if not _TOPIC.fullmatch(partition.topic):
            raise InvalidRequestError(
                f"{partition.topic!r} is not a legal topic name", reason=ErrorReason.INVALID_TOPIC
            )
        base = (
            f"{self.prefix}{partition.topic}-{partition.topic_id}/{partition.partition}/"
            f"{metadata.start_offset:020d}-{metadata.segment_id.id}"
        )
        return keys_of_base(base)

    def is_log(self, key: str) -> bool:
        """Whether a key is one that this class makes for a log; a bucket may be shared with others."""
        return key.startswith(self.prefix) and bool(_LOG.fullmatch(key, len(self.prefix)))

    def base_of(self, key: str) -> str | None:
        """Return what the keys of a segment's objects share; none for a key that this class does not make."""
        if not key.startswith(self.prefix):
            return None
        match = _ANY.fullmatch(key, len(self.prefix))
        return self.prefix + match[1] if match else None


def keys_of_base(base: str) -> SegmentKeys:
    """Return the keys that share a base."""
    return SegmentKeys(
        log=base + LOG_SUFFIX, indexes=base + INDEXES_SUFFIX, manifest=base + MANIFEST_SUFFIX
    )


def keys_of_manifest(manifest_key: str) -> SegmentKeys:
    """Return the keys of the segment that a manifest's key belongs to."""
    return keys_of_base(manifest_key.removesuffix(MANIFEST_SUFFIX))
