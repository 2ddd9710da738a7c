"""What remote storage knows of a partition when the local log has lost files."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog
from aquifer_core.errors import (
    CorruptIndexError,
    ErrorReason,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.leader_epoch_checkpoint import parse_leader_epochs
from aquifer_core.ids import TopicIdPartition
from aquifer_core.leader_epoch import LeaderEpochCache, LeaderEpochEntry
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import IndexType, RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

__all__ = ["RemotePart", "fetch_leader_epochs", "fetch_producer_snapshot", "find_remote_part"]

logger = structlog.get_logger(__name__)

_ASK_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePart:
    """The remote side of a partition.

    Attributes:
        finished: Segments that can be read, by start offset.
        newest_epoch: Highest leader epoch that any segment names, unfinished ones included; -1: there is none.
        recorded_start: The log start offset that a leader recorded; None: none did.
    """

    finished: Sequence[RemoteLogSegmentMetadata]
    newest_epoch: int
    recorded_start: int | None

    @property
    def is_empty(self) -> bool:
        """Whether no record of the partition was ever on its way to remote storage, as far as is known."""
        return self.newest_epoch < 0 and self.recorded_start is None

    @property
    def last(self) -> RemoteLogSegmentMetadata | None:
        """The segment that reaches furthest in the newest leader epoch; copies of older leaders may reach further."""
        return max(self.finished, key=_reach, default=None)

    @property
    def end_offset(self) -> int:
        """Offset behind everything that is remote or was deleted; 0: nothing."""
        copied = self.last.end_offset + 1 if self.last is not None else 0
        return max(copied, self.recorded_start or 0)

    @property
    def start_offset(self) -> int:
        """Where the log starts (K-3.2)."""
        if self.recorded_start is not None:
            return self.recorded_start
        return self.finished[0].start_offset if self.finished else 0


async def find_remote_part(
    metadata: RemoteLogMetadataManager, topic_id_partition: TopicIdPartition
) -> RemotePart:
    """Asks for everything that is listed.

    Raises:
        RemoteStorageUnavailableError: There was no answer in time.
    """
    try:
        async with asyncio.timeout(_ASK_S):
            # Every implementation is an async generator, which has to be closed in time.
            listing = cast(Any, metadata.list_remote_log_segments(topic_id_partition))
            async with aclosing(listing):
                listed: list[RemoteLogSegmentMetadata] = [each async for each in listing]
            recorded_start = await metadata.earliest_log_offset(topic_id_partition)
    except TimeoutError as error:
        raise _unanswered(f"metadata of {topic_id_partition}") from error
    return RemotePart(
        finished=[
            each for each in listed if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        ],
        newest_epoch=max((max(each.segment_leader_epochs) for each in listed), default=-1),
        recorded_start=recorded_start,
    )


async def fetch_leader_epochs(
    storage: RemoteStorageManager,
    last: RemoteLogSegmentMetadata,
    finished: Iterable[RemoteLogSegmentMetadata],
) -> Sequence[LeaderEpochEntry]:
    """The lineage up to the end of a segment: what was stored with it, and before that what metadata says of older segments.

    Raises:
        RemoteStorageUnavailableError: There was no answer in time.
        RemoteResourceNotFoundError: The segment is not there.
    """
    stored = await _fetch(storage, last, IndexType.LEADER_EPOCH)
    checkpoint: Sequence[LeaderEpochEntry] = ()
    if stored is not None:
        try:
            checkpoint = parse_leader_epochs(stored)
        except CorruptIndexError as error:
            logger.warning(
                "remote_leader_epochs_corrupt",
                segment_id=str(last.segment_id.id),
                error=error.message,
            )
    first = checkpoint[0] if checkpoint else None
    older = [
        entry
        for entry in _named_by(finished)
        if first is None or (entry.epoch < first.epoch and entry.start_offset < first.start_offset)
    ]
    return LeaderEpochCache([*older, *checkpoint]).entries


async def fetch_producer_snapshot(
    storage: RemoteStorageManager, last: RemoteLogSegmentMetadata
) -> bytes | None:
    """Producers as of the end of a segment; None: none were stored.

    Raises:
        RemoteStorageUnavailableError: There was no answer in time.
        RemoteResourceNotFoundError: The segment is not there.
    """
    return await _fetch(storage, last, IndexType.PRODUCER_SNAPSHOT)


async def _fetch(
    storage: RemoteStorageManager, segment: RemoteLogSegmentMetadata, index_type: IndexType
) -> bytes | None:
    try:
        async with asyncio.timeout(_ASK_S):
            return await storage.fetch_index(segment, index_type)
    except RemoteResourceNotFoundError as error:
        if error.reason is not ErrorReason.INDEX_NOT_FOUND:
            raise
        logger.warning(
            "remote_index_missing",
            segment_id=str(segment.segment_id.id),
            index_type=index_type.name,
        )
        return None
    except TimeoutError as error:
        raise _unanswered(f"{index_type.name} of segment {segment.segment_id.id}") from error


def _named_by(segments: Iterable[RemoteLogSegmentMetadata]) -> list[LeaderEpochEntry]:
    starts: dict[int, int] = {}
    for segment in segments:
        for epoch, start_offset in segment.segment_leader_epochs.items():
            starts[epoch] = min(start_offset, starts.get(epoch, start_offset))
    return [LeaderEpochEntry(epoch, start_offset) for epoch, start_offset in sorted(starts.items())]


def _reach(segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return max(segment.segment_leader_epochs), segment.end_offset


def _unanswered(what: str) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(
        f"{what}: no answer within {_ASK_S:g} s", reason=ErrorReason.PEER_UNAVAILABLE
    )
