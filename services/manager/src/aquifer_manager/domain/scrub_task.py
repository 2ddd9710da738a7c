"""Compares a partition's metadata with what the store holds, and with what the store's bytes say (T17)."""

from dataclasses import replace
from typing import Final

import structlog
from aquifer_core.errors import (
    AquiferError,
    CorruptDataError,
    ErrorReason,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.ports import LogDescription, Telemetry
from aquifer_manager.domain.scrub_healing import ScrubHealing
from aquifer_manager.domain.scrub_judgement import judge_extra
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, Remedy, TaskAction, TaskKey, TaskOutcome

__all__ = ["ScrubTask"]

logger = structlog.get_logger(__name__)

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

Listing = dict[KafkaUuid, RemoteLogSegmentMetadata]


class ScrubTask:
    """Reports missing, extra and corrupt segments, and heals what it can when it is asked to.

    Copies and deletions may go on meanwhile. The store is listed before metadata, so that a copy which begins in between is known
    to metadata; a segment is missing only when metadata still has it finished afterwards; and an extra one must have an age.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager,
        healing: ScrubHealing,
        *,
        clock: Clock,
        telemetry: Telemetry,
        grace_ms: int = 600_000,
    ) -> None:
        """Prepares; stored segments younger than `grace_ms` are not yet called extra."""
        self._storage = storage
        self._metadata = metadata
        self._healing = healing
        self._clock = clock
        self._telemetry = telemetry
        self._grace_ms = grace_ms

    async def run(self, key: TaskKey, *, deep: bool = True, heal: bool = False) -> TaskOutcome:
        """One scrub.

        Args:
            key: of the partition, which may be one that no broker announced, or one that was deleted.
            deep: reads every byte back; otherwise only existence is checked.
            heal: removes proven orphans and copies missing segments again; otherwise it is only said what could be done. What
                cannot be healed now keeps its finding, with the reason.

        Raises:
            AquiferError: metadata or storage did not answer; nothing is concluded from that.
        """
        tip = key.topic_id_partition
        with self._telemetry.span("scrub", tip, {"deep": int(deep), "heal": int(heal)}):
            stored = await self._stored(tip)
            known = await self._known(tip)
            suspects = await self._checked(known, deep=deep)
            if suspects:
                still = await self._known(tip)
                suspects = [
                    each for each in suspects if _is_finished(still.get(each.segment.segment_id.id))
                ]
            log = await self._healing.leader_log(tip)
            present = _without(known, suspects)
            actions = await self._extra(tip, _unknown(stored, known), present, log)
            actions += [await self._healing.advise(each, present) for each in suspects]
            if heal:
                actions = [await self._healed(each) for each in actions]
        return TaskOutcome(actions=tuple(actions))

    async def _stored(self, tip: TopicIdPartition, *, start_offset: int | None = None) -> Listing:
        """The partition's stored segments, all of them or those that start at an offset."""
        prefix = f"{tip.topic}-{tip.topic_id}/{tip.partition}/"
        if start_offset is not None:
            prefix += f"{start_offset:020d}-"
        found: Listing = {}
        try:
            async with closing(self._storage.list_stored_segments(prefix)) as listing:
                async for each in listing:
                    if each.metadata.topic_id_partition == tip:
                        found[each.metadata.segment_id.id] = each.metadata
        except CorruptDataError as error:
            # Said after all sound ones. What metadata knows of the others is checked one by one below.
            logger.warning(
                "manifests_damaged", topic=tip.topic, partition=tip.partition, error=error
            )
        return found

    async def _known(self, tip: TopicIdPartition) -> Listing:
        try:
            async with closing(self._metadata.list_remote_log_segments(tip)) as listing:
                return {segment.segment_id.id: segment async for segment in listing}
        except RemoteResourceNotFoundError as error:
            if error.reason is not ErrorReason.PARTITION_NOT_FOUND:
                raise
            return {}

    async def _extra(
        self, tip: TopicIdPartition, unknown: Listing, present: Listing, log: LogDescription | None
    ) -> list[TaskAction]:
        oldest_ms = self._clock.now_ms() - self._grace_ms
        found = []
        for segment in unknown.values():
            if segment.event_timestamp_ms > oldest_ms:
                continue
            reason = await judge_extra(self._metadata, segment, present, log)
            if reason is not None:
                remedy = Remedy.REMOVE if reason.proven else Remedy.NONE
                found.append(
                    TaskAction(
                        segment=segment,
                        action=ActionKind.EXTRA,
                        reason=reason.value,
                        remedy=remedy,
                    )
                )
        # What was deleted between the two listings is in the first one only.
        return [each for each in found if await self._is_still_stored(tip, each.segment)]

    async def _is_still_stored(
        self, tip: TopicIdPartition, segment: RemoteLogSegmentMetadata
    ) -> bool:
        listed = await self._stored(tip, start_offset=segment.start_offset)
        return segment.segment_id.id in listed

    async def _checked(self, known: Listing, *, deep: bool) -> list[TaskAction]:
        found = [
            await self._check(segment, deep=deep)
            for segment in known.values()
            if _is_finished(segment)
        ]
        return [action for action in found if action is not None]

    async def _check(self, segment: RemoteLogSegmentMetadata, *, deep: bool) -> TaskAction | None:
        try:
            # A look at the manifest, and for the log: with no log there is nothing to verify.
            await self._storage.describe_segment(segment)
            if not deep:
                return None
            async with closing(self._storage.verify_segment(segment)) as progress:
                async for step in progress:
                    if step.findings:
                        reason = f"CHECKSUM_MISMATCH {step.findings[0].part}"
                        return TaskAction(segment=segment, action=ActionKind.CORRUPT, reason=reason)
        except RemoteResourceNotFoundError:
            return TaskAction(segment=segment, action=ActionKind.MISSING, reason="NOT_IN_STORE")
        except CorruptDataError as error:
            reason, detail = "CHECKSUM_MISMATCH manifest", error.message
            return TaskAction(
                segment=segment, action=ActionKind.CORRUPT, reason=reason, detail=detail
            )
        return None

    async def _healed(self, finding: TaskAction) -> TaskAction:
        """The finding after its remedy, or with what kept it from being healed."""
        if finding.remedy is Remedy.NONE:
            return finding
        try:
            if finding.action is ActionKind.MISSING:
                return await self._healing.heal_missing(finding)
            return await self._remove(finding)
        except AquiferError as error:
            segment_id = str(finding.segment.segment_id.id)
            logger.warning("finding_not_healed", segment_id=segment_id, error=str(error))
            return replace(finding, detail=f"{error.reason.value}: {error.message}")

    async def _remove(self, finding: TaskAction) -> TaskAction:
        """Removes an orphan, unless what speaks for it does not hold any more."""
        tip = finding.segment.topic_id_partition
        known = await self._known(tip)
        if finding.segment.segment_id.id in known:
            return _without_remedy(finding, "metadata knows it by now")
        nearby = _overlapping(known, finding.segment)
        present = _without(known, await self._checked(nearby, deep=False))
        log = await self._healing.leader_log(tip)
        reason = await judge_extra(self._metadata, finding.segment, present, log)
        if reason is None or not reason.proven:
            return _without_remedy(finding, "it is no proven orphan any more")
        return await self._healing.remove(finding)


def _unknown(stored: Listing, known: Listing) -> Listing:
    """What metadata does not list."""
    return {key: segment for key, segment in stored.items() if key not in known}


def _overlapping(known: Listing, segment: RemoteLogSegmentMetadata) -> Listing:
    """What may hold records of a segment, too."""
    return {
        key: each
        for key, each in known.items()
        if each.start_offset <= segment.end_offset and each.end_offset >= segment.start_offset
    }


def _without(known: Listing, findings: list[TaskAction]) -> Listing:
    """What is listed and sound."""
    bad = {finding.segment.segment_id.id for finding in findings}
    return {key: segment for key, segment in known.items() if key not in bad}


def _without_remedy(finding: TaskAction, detail: str) -> TaskAction:
    return TaskAction(
        segment=finding.segment, action=finding.action, reason=finding.reason, detail=detail
    )


def _is_finished(segment: RemoteLogSegmentMetadata | None) -> bool:
    return segment is not None and segment.state is _FINISHED
