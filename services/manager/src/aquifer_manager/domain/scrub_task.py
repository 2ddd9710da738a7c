"""Compares a partition's metadata with what the store holds, and with what the store's bytes say (T17)."""

from typing import Final

from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.ports import Telemetry
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, TaskAction, TaskKey, TaskOutcome

__all__ = ["ScrubTask"]

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

Listing = dict[KafkaUuid, RemoteLogSegmentMetadata]


class ScrubTask:
    """Reports missing, extra and corrupt segments; changes nothing.

    Copies and deletions may go on meanwhile. The store is listed before metadata, so that a copy which begins in between is known
    to metadata; a segment is missing only when metadata still has it finished afterwards; and an extra one must have an age.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        *,
        clock: Clock,
        telemetry: Telemetry,
        grace_ms: int = 600_000,
    ) -> None:
        """Prepares; stored segments younger than `grace_ms` are not yet called extra."""
        self._storage = storage
        self._metadata = metadata
        self._clock = clock
        self._telemetry = telemetry
        self._grace_ms = grace_ms

    async def run(self, key: TaskKey, *, deep: bool = True) -> TaskOutcome:
        """One scrub.

        Args:
            key: of the partition.
            deep: reads every byte back; otherwise only existence is checked.

        Raises:
            AquiferError: metadata or storage did not answer; nothing is concluded from that.
        """
        tip = key.topic_id_partition
        with self._telemetry.span("scrub", tip, {"deep": int(deep)}):
            stored = await self._stored(tip)
            known = await self._known(tip)
            actions = self._extra(stored, known)
            suspects = await self._checked(known, deep=deep)
            if suspects:
                still = await self._known(tip)
                actions += [
                    suspect
                    for suspect in suspects
                    if _is_finished(still.get(suspect.segment.segment_id.id))
                ]
        return TaskOutcome(actions=tuple(actions))

    async def _stored(self, tip: TopicIdPartition) -> Listing:
        prefix = f"{tip.topic}-{tip.topic_id}/{tip.partition}/"
        async with closing(self._storage.list_stored_segments(prefix)) as listing:
            return {
                each.metadata.segment_id.id: each.metadata
                async for each in listing
                if each.metadata.topic_id_partition == tip
            }

    async def _known(self, tip: TopicIdPartition) -> Listing:
        async with closing(self._metadata.list_remote_log_segments(tip)) as listing:
            return {segment.segment_id.id: segment async for segment in listing}

    def _extra(self, stored: Listing, known: Listing) -> list[TaskAction]:
        oldest_ms = self._clock.now_ms() - self._grace_ms
        return [
            TaskAction(segment=segment, action=ActionKind.EXTRA, reason="NOT_IN_METADATA")
            for segment_id, segment in stored.items()
            if segment_id not in known and segment.event_timestamp_ms <= oldest_ms
        ]

    async def _checked(self, known: Listing, *, deep: bool) -> list[TaskAction]:
        found = [
            await self._check(segment, deep=deep)
            for segment in known.values()
            if _is_finished(segment)
        ]
        return [action for action in found if action is not None]

    async def _check(self, segment: RemoteLogSegmentMetadata, *, deep: bool) -> TaskAction | None:
        try:
            if not deep:
                await self._storage.describe_segment(segment)
                return None
            async with closing(self._storage.verify_segment(segment)) as progress:
                async for step in progress:
                    if step.findings:
                        reason = f"CHECKSUM_MISMATCH {step.findings[0].part}"
                        return TaskAction(segment=segment, action=ActionKind.CORRUPT, reason=reason)
        except RemoteResourceNotFoundError:
            return TaskAction(segment=segment, action=ActionKind.MISSING, reason="NOT_IN_STORE")
        return None


def _is_finished(segment: RemoteLogSegmentMetadata | None) -> bool:
    return segment is not None and segment.state is _FINISHED
