"""Compares a partition's metadata with what the store holds, and with what the store's bytes say (T17)."""

from dataclasses import dataclass, replace
from typing import Final

import structlog
from aquifer_core.errors import AquiferError, CorruptDataError, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.coverage import Coverage, Coverages
from aquifer_manager.domain.ports import LogDescription, Telemetry
from aquifer_manager.domain.scrub_healing import ScrubHealing
from aquifer_manager.domain.scrub_judgement import judge_extra
from aquifer_manager.domain.scrub_listings import is_stored, unlisted_segments
from aquifer_manager.domain.segment_pages import listed_segments, segment_pages
from aquifer_manager.domain.streams import closing
from aquifer_manager.domain.tasks import ActionKind, Remedy, TaskAction, TaskKey, TaskOutcome

__all__ = ["ScrubTask"]

logger = structlog.get_logger(__name__)

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

_MOST_FINDINGS: Final = 2500
"""Of one run and each side; their messages fit in an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What was found of the segments that metadata lists.

    Attributes:
        findings: missing and corrupt segments.
        to_offset: segments that start above were not looked at any more; None: all were.
    """

    findings: list[TaskAction]
    to_offset: int | None = None


class ScrubTask:
    """Reports missing, extra and corrupt segments, and heals what it can when it is asked to.

    Copies and deletions may go on meanwhile. Store and metadata are listed side by side and never held; what metadata does not list is
    looked up in its history afterwards, so that a copy which begins in between is known; a segment is missing only when
    metadata still has it finished afterwards; and an extra one must have an age. A run that has found very much ends early.
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
            unlisted, all_listed = await self._unlisted(tip)
            checked = await self._checked(tip, deep=deep)
            suspects, coverages = await self._looked_at_again(tip, unlisted, checked)
            log = await self._healing.leader_log(tip)
            actions = await self._extra(unlisted, coverages, log)
            actions += [
                await self._healing.advise(each, coverages.of(each.segment.segment_id.id))
                for each in suspects
            ]
            if heal:
                actions = [await self._healed(each) for each in actions]
        more = not all_listed or checked.to_offset is not None
        return TaskOutcome(actions=tuple(actions), more_work=more)

    async def _unlisted(self, tip: TopicIdPartition) -> tuple[list[RemoteLogSegmentMetadata], bool]:
        """Stored segments of some age that metadata does not list, and whether these are all."""
        oldest_ms = self._clock.now_ms() - self._grace_ms
        found: list[RemoteLogSegmentMetadata] = []
        async with closing(unlisted_segments(self._storage, self._metadata, tip)) as unlisted:
            async for segment in unlisted:
                if segment.event_timestamp_ms > oldest_ms:
                    continue
                if len(found) == _MOST_FINDINGS:
                    return found, False
                found.append(segment)
        return found, True

    async def _checked(self, tip: TopicIdPartition, *, deep: bool) -> _Checked:
        found: list[TaskAction] = []
        last = await self._last_start_offset(tip)
        async with closing(segment_pages(self._metadata, tip)) as pages:
            async for page in pages:
                for segment in page:
                    if segment.start_offset > last:
                        return _Checked(findings=found)
                    if segment.state is not _FINISHED:
                        continue
                    if len(found) == _MOST_FINDINGS:
                        return _Checked(findings=found, to_offset=segment.start_offset - 1)
                    finding = await self._check(segment, deep=deep)
                    if finding is not None:
                        found.append(finding)
        return _Checked(findings=found)

    async def _last_start_offset(self, tip: TopicIdPartition) -> int:
        """Where what is looked at ends: a partition may be copied faster than it is looked at."""
        last = -1
        async with closing(listed_segments(self._metadata, tip)) as listing:
            async for segment in listing:
                last = segment.start_offset
        return last

    async def _looked_at_again(
        self, tip: TopicIdPartition, unlisted: list[RemoteLogSegmentMetadata], checked: _Checked
    ) -> tuple[list[TaskAction], Coverages]:
        """Those findings that metadata still has as finished, and which records the sound segments hold."""
        suspects = {each.segment.segment_id.id: each for each in checked.findings}
        coverages = Coverages([*unlisted, *(each.segment for each in checked.findings)])
        still: set[KafkaUuid] = set()
        if not suspects and not unlisted:
            return [], coverages
        async with closing(listed_segments(self._metadata, tip)) as listing:
            async for segment in listing:
                if segment.segment_id.id in suspects:
                    if segment.state is _FINISHED:
                        still.add(segment.segment_id.id)
                elif checked.to_offset is None or segment.start_offset <= checked.to_offset:
                    coverages.note(segment)
        return [each for key, each in suspects.items() if key in still], coverages

    async def _extra(
        self,
        unlisted: list[RemoteLogSegmentMetadata],
        coverages: Coverages,
        log: LogDescription | None,
    ) -> list[TaskAction]:
        found = []
        for segment in unlisted:
            coverage = coverages.of(segment.segment_id.id)
            reason = await judge_extra(
                self._metadata, segment, coverage, log, any_listed=coverages.any_noted
            )
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
        # What was deleted since the store listed it is there no more.
        return [each for each in found if await is_stored(self._storage, each.segment)]

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
        segment = finding.segment
        tip = segment.topic_id_partition
        coverage, any_listed = Coverage(segment), False
        async with closing(listed_segments(self._metadata, tip)) as listing:
            async for each in listing:
                if each.segment_id == segment.segment_id:
                    return _without_remedy(finding, "metadata knows it by now")
                if each.start_offset > segment.end_offset:
                    any_listed = True
                    break
                if each.state is not _FINISHED or each.end_offset < segment.start_offset:
                    any_listed = True
                elif await self._check(each, deep=False) is None:
                    any_listed = True
                    coverage.note(each)
        log = await self._healing.leader_log(tip)
        reason = await judge_extra(self._metadata, segment, coverage, log, any_listed=any_listed)
        if reason is None or not reason.proven:
            return _without_remedy(finding, "it is no proven orphan any more")
        return await self._healing.remove(finding)


def _without_remedy(finding: TaskAction, detail: str) -> TaskAction:
    return TaskAction(
        segment=finding.segment, action=finding.action, reason=finding.reason, detail=detail
    )
