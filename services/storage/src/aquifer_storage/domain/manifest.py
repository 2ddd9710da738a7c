"""The manifest of a segment: what the store holds of it and how to read that."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aquifer_core.errors import CorruptDataError
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.segment import RemoteLogSegmentMetadata, StoredSegment

from aquifer_storage.domain.custom_metadata import RemoteLogIndexLocation, encode_chunks
from aquifer_storage.domain.envelope import Envelope
from aquifer_storage.domain.object_key import SegmentKeys

LOG_PART: Final = "log"


class BundlePart(StrEnum):
    """Parts of the index bundle, in the order in which they lie there."""

    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCHS = "leader_epochs"
    REMOTE_LOG_INDEX = "remote_log_index"
    REMOTE_OFFSET_INDEX = "remote_offset_index"
    REMOTE_TIME_INDEX = "remote_time_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLocation:
    """Where a part lies in the index bundle, and the hex SHA-256 of its bytes."""

    position: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """The `.log` object.

    Attributes:
        original_bytes: size of the log that was copied.
        stored_bytes: size of the object.
        sha256: hex SHA-256 of the log that was copied.
        codec: compression of its chunks.
    """

    original_bytes: int
    stored_bytes: int
    sha256: str
    chunk_count: int
    codec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the store holds of one segment.

    Attributes:
        metadata: as it was when copied.
        log: the `.log` object.
        parts: the index bundle.
        encryption: how chunks and indexes are sealed; none when they are not.
        writer_version: what wrote the segment.
        bundle: the index bundle as it is stored, when it lies in the manifest; none: in an object of its own.
    """

    metadata: RemoteLogSegmentMetadata
    log: StoredLog
    parts: Mapping[BundlePart, PartLocation]
    writer_version: str
    encryption: Envelope | None = None
    bundle: bytes | None = None

    @property
    def bundle_bytes(self) -> int:
        """Size of the index bundle."""
        return sum(part.size_bytes for part in self.parts.values())

    def stored_bytes(self, manifest_bytes: int) -> int:
        """Size of all objects together."""
        separate_bytes = self.bundle_bytes if self.bundle is None else 0
        return self.log.stored_bytes + separate_bytes + manifest_bytes

    @property
    def custom_metadata(self) -> bytes | None:
        """What a copy answers: the remote log index or where it lies; none when the manifest must be read anyway."""
        index = self.parts.get(BundlePart.REMOTE_LOG_INDEX)
        if index is None or not index.size_bytes or self.encryption is not None:
            return None
        if self.bundle is not None:
            return self._chunks(self.bundle[index.position : index.position + index.size_bytes])
        location = RemoteLogIndexLocation(position=index.position, size_bytes=index.size_bytes)
        return location.encode()

    def _chunks(self, table: bytes) -> bytes | None:
        try:
            return encode_chunks(self.metadata, RemoteLogIndex.parse(table))
        except (CorruptDataError, struct.error):  # no copy writes such; who reads it is told
            return None

    def stored_segment(self, keys: SegmentKeys, manifest_bytes: int) -> StoredSegment:
        """Return the manifest as the role's contract has it."""
        sha256 = {str(part): location.sha256 for part, location in self.parts.items()}
        indexes = (keys.indexes,) if self.bundle is None else ()
        return StoredSegment(
            metadata=self.metadata,
            object_keys=(keys.log, *indexes, keys.manifest),
            stored_bytes=self.stored_bytes(manifest_bytes),
            original_bytes=self.log.original_bytes,
            chunk_count=self.log.chunk_count,
            codec=self.log.codec,
            key_id=None if self.encryption is None else self.encryption.key.key_id,
            sha256={LOG_PART: self.log.sha256, **sha256},
            writer_version=self.writer_version,
            custom_metadata=self.custom_metadata,
        )
