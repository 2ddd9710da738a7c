"""The index bundle: every small part of a segment in one object."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from aquifer_core.errors import CorruptIndexError, CorruptSegmentError, InvalidRequestError
from aquifer_core.formats import transaction_index
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.remote_log_index import RemoteLogIndex
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

from aquifer_storage.domain.manifest import BundlePart, PartLocation
from aquifer_storage.domain.transform import SegmentTransform

_MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF

PART_OF_INDEX: Final[Mapping[IndexType, BundlePart]] = MappingProxyType(
    {
        IndexType.OFFSET: BundlePart.OFFSET_INDEX,
        IndexType.TIMESTAMP: BundlePart.TIME_INDEX,
        IndexType.TRANSACTION: BundlePart.TRANSACTION_INDEX,
        IndexType.PRODUCER_SNAPSHOT: BundlePart.PRODUCER_SNAPSHOT,
        IndexType.LEADER_EPOCH: BundlePart.LEADER_EPOCHS,
        IndexType.REMOTE_LOG_INDEX: BundlePart.REMOTE_LOG_INDEX,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBundle:
    """The bytes of the bundle and where its parts lie."""

    data: bytes
    parts: Mapping[BundlePart, PartLocation]


def check_indexes(metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
    """Refuse indexes that a broker would refuse when it opens them, before they are stored.

    Raises:
        CorruptIndexError: one is malformed.
        InvalidRequestError: the segment holds more offsets than an index can.
    """
    start_offset = metadata.start_offset
    if metadata.end_offset - start_offset > _MAX_RELATIVE_OFFSET:
        raise InvalidRequestError(
            f"segment {metadata.segment_id.id} holds offsets {start_offset} to {metadata.end_offset}; "
            f"indexes reach {_MAX_RELATIVE_OFFSET} beyond the first"
        )
    try:
        OffsetIndex(data.offset_index, start_offset).sanity_check()
        TimeIndex(data.time_index, start_offset).sanity_check()
        if data.transaction_index is not None:
            transaction_index.sanity_check(data.transaction_index, start_offset)
    except CorruptIndexError as error:
        raise CorruptIndexError(
            f"segment {metadata.segment_id.id}: {error.message}",
            metadata={"segmentId": str(metadata.segment_id.id)},
        ) from error


def index_bytes(data: LogSegmentData) -> int:
    """Return how much a broker's indexes of a segment take."""
    parts = (
        data.offset_index,
        data.time_index,
        data.transaction_index,
        data.producer_snapshot,
        data.leader_epochs,
    )
    return sum(len(part) for part in parts if part is not None)


def build_bundle(
    metadata: RemoteLogSegmentMetadata,
    data: LogSegmentData,
    chunks: RemoteLogIndex,
    transform: SegmentTransform,
) -> IndexBundle:
    """Build the bundle of a copy, each part sealed on its own. A transaction index without entries is left out, as if it were absent."""
    contents: dict[BundlePart, bytes | None] = {
        BundlePart.OFFSET_INDEX: data.offset_index,
        BundlePart.TIME_INDEX: data.time_index,
        BundlePart.TRANSACTION_INDEX: data.transaction_index or None,
        BundlePart.PRODUCER_SNAPSHOT: data.producer_snapshot,
        BundlePart.LEADER_EPOCHS: data.leader_epochs,
        BundlePart.REMOTE_LOG_INDEX: chunks.encode(),
        BundlePart.REMOTE_OFFSET_INDEX: chunks.remote_offset_index(metadata.start_offset),
        BundlePart.REMOTE_TIME_INDEX: chunks.remote_time_index(metadata.start_offset),
    }
    stored: list[Buffer] = []
    parts = {}
    position = 0
    for part, content in contents.items():
        if content is None:
            continue
        sealed = transform.seal_part(part, content)
        digest = hashlib.sha256(content).hexdigest()
        parts[part] = PartLocation(position=position, size_bytes=len(sealed), sha256=digest)
        stored.append(sealed)
        position += len(sealed)
    return IndexBundle(data=b"".join(stored), parts=MappingProxyType(parts))


def opened_part(
    transform: SegmentTransform, part: BundlePart, location: PartLocation, stored: bytes
) -> bytes:
    """Return the original bytes of a part, checked against the manifest.

    Raises:
        CorruptSegmentError: they are damaged.
    """
    data = transform.open_part(part, stored)
    if hashlib.sha256(data).hexdigest() == location.sha256:
        return data
    segment_id = str(transform.segment_id)
    raise CorruptSegmentError(
        f"segment {segment_id}: {part} at position {location.position} of the index bundle is damaged",
        metadata={"segmentId": segment_id, "position": str(location.position)},
    )
