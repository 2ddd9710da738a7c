"""Segments that could not be deleted, published for people and programs (SR-17, SR-35).

Expirations go on trying by themselves. What is published is a compacted view of what is still to be deleted: the segment's id
as key, a JSON document as value, and a tombstone once the segment is gone.
"""

import json
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ports import Clock, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

__all__ = ["DeletionFailures", "FailedDeletion", "FailureTopic"]

logger = structlog.get_logger(__name__)


class FailureTopic(Protocol):
    """Where failures are published."""

    async def publish(self, key: str, value: bytes | None) -> None:
        """Writes one record; None is a tombstone. Raises whatever keeps it from being written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDeletion:
    """A segment whose deletion failed, `attempts` times as far as this process knows."""

    segment: RemoteLogSegmentMetadata
    reason: str
    attempts: int
    first_failure_ms: int
    last_failure_ms: int

    def document(self, object_keys: tuple[str, ...]) -> bytes:
        """The value to publish."""
        segment = self.segment
        return json.dumps(
            {
                "topic": segment.topic_id_partition.topic,
                "topicId": str(segment.topic_id_partition.topic_id),
                "partition": segment.topic_id_partition.partition,
                "segmentId": str(segment.segment_id.id),
                "startOffset": segment.start_offset,
                "endOffset": segment.end_offset,
                "objectKeys": list(object_keys),
                "reason": self.reason,
                "attempts": self.attempts,
                "firstFailureMs": self.first_failure_ms,
                "lastFailureMs": self.last_failure_ms,
            }
        ).encode()


class DeletionFailures:
    """Remembers failures and publishes them with `flush`; noting one never waits and never fails."""

    def __init__(
        self, storage: RemoteStorageManager, topic: FailureTopic | None, *, clock: Clock
    ) -> None:
        """Prepares.

        Args:
            storage: tells the objects of a segment.
            topic: where to publish; None: nowhere, failures are only remembered.
            clock: wall clock.
        """
        self._storage = storage
        self._topic = topic
        self._clock = clock
        self._failed: dict[str, FailedDeletion] = {}
        self._unpublished: dict[str, FailedDeletion | None] = {}

    def failed(self, segment: RemoteLogSegmentMetadata, error: AquiferError) -> None:
        """A deletion failed."""
        key, now_ms = str(segment.segment_id.id), self._clock.now_ms()
        known = self._failed.get(key) or FailedDeletion(
            segment=segment, reason="", attempts=0, first_failure_ms=now_ms, last_failure_ms=now_ms
        )
        entry = replace(
            known,
            reason=error.reason.value,
            attempts=known.attempts + 1,
            last_failure_ms=now_ms,
        )
        self._failed[key] = self._unpublished[key] = entry

    def deleted(self, segment: RemoteLogSegmentMetadata) -> None:
        """The deletion of a segment, as it was before, succeeded; one that was begun earlier may be published."""
        key = str(segment.segment_id.id)
        known = self._failed.pop(key, None)
        if known is not None or segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            self._unpublished[key] = None

    def last_failure_ms(self, segment: RemoteLogSegmentMetadata) -> int:
        """When the deletion of a segment failed last, by the wall clock; 0: it did not."""
        known = self._failed.get(str(segment.segment_id.id))
        return 0 if known is None else known.last_failure_ms

    def failing(self) -> list[FailedDeletion]:
        """Segments whose last deletion failed."""
        return list(self._failed.values())

    async def flush(self) -> None:
        """Publishes what was noted since the last flush.

        Raises:
            Exception: it could not be published; the next flush tries again.
        """
        if self._topic is None:
            self._unpublished.clear()
            return
        for key in list(self._unpublished):
            entry = self._unpublished[key]
            value = None if entry is None else entry.document(await self._object_keys(entry))
            await self._topic.publish(key, value)
            # Something newer may have been noted meanwhile.
            if self._unpublished[key] is entry:
                del self._unpublished[key]

    async def _object_keys(self, entry: FailedDeletion) -> tuple[str, ...]:
        """The segment's objects; none when the store does not tell, which is likely while deletions fail."""
        try:
            return (await self._storage.describe_segment(entry.segment)).object_keys
        except AquiferError as error:
            logger.debug(
                "objects_unknown", segment_id=str(entry.segment.segment_id.id), error=error
            )
            return ()
