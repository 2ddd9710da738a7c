"""Copies rolled segments of a partition that a broker leads (SR-16, K-3.2)."""

from typing import Final

from aquifer_core.errors import StaleLeaderEpochError
from aquifer_core.ports import Clock

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.copy_candidates import (
    copy_metadata,
    first_offset_to_copy,
    select_candidates,
)
from aquifer_manager.domain.copy_turns import CopyTurns
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.offset_constraints import FiveOffsets, check_offsets
from aquifer_manager.domain.ports import LogDescription, RolledSegment, Telemetry
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.tasks import (
    ActionKind,
    Deferral,
    TaskAction,
    TaskKey,
    TaskOutcome,
    TaskType,
)
from aquifer_manager.domain.upload_slots import UploadSlots

__all__ = ["CopyTask"]

_SHORT_WAIT_S: Final = 0.1


class CopyTask:
    """Runs copies: a few segments a run, oldest first; the first failure ends the run.

    A copy under way completes when leadership moves; metadata's fence decides whether it counts (SR-22).
    """

    def __init__(
        self,
        registry: Registry,
        logs: LeaderLogs,
        copies: SegmentCopy,
        turns: CopyTurns,
        *,
        uploads: UploadSlots,
        clock: Clock,
        telemetry: Telemetry,
        segments_per_run: int = 16,
    ) -> None:
        """Prepares.

        Args:
            registry: says for whom to work.
            logs: describes the leader's log.
            copies: copies single segments.
            turns: when the quota lets a copy begin.
            uploads: places of each broker.
            clock: wall clock.
            telemetry: spans and counters.
            segments_per_run: after these the task goes to the end of the queue, due at once.
        """
        self._registry = registry
        self._logs = logs
        self._copies = copies
        self._turns = turns
        self._uploads = uploads
        self._clock = clock
        self._telemetry = telemetry
        self._segments_per_run = segments_per_run

    async def run(self, key: TaskKey) -> TaskOutcome:
        """One run; deferred when the broker's places are taken, or where the quota says that a copy must wait.

        Raises:
            AquiferError: nothing is lost, the next run goes on from what metadata knows.
        """
        assignment = self._registry.leader(key.topic_id_partition)
        if assignment is None:
            return TaskOutcome()
        with self._uploads.run_at(assignment.address, key) as may_run:
            if not may_run:
                return TaskOutcome(deferred=Deferral.BROKER_PLACES)
            return await self._traced(assignment)

    async def _traced(self, assignment: Assignment) -> TaskOutcome:
        tip = assignment.topic_id_partition
        with self._telemetry.span("copy", tip, {"leader_epoch": assignment.leader_epoch}):
            try:
                return await self._run(assignment)
            except StaleLeaderEpochError as error:
                self._telemetry.count("copy.errors", 1, tip.topic)
                self._logs.fence(assignment, error)
                raise
            except Exception:
                self._telemetry.count("copy.errors", 1, tip.topic)
                raise

    async def _run(self, assignment: Assignment) -> TaskOutcome:
        await self._copies.settle(assignment.work, assignment.broker_id)
        log = await self._logs.prepare(assignment, max_segments=self._segments_per_run + 1)
        if assignment.work.failed:
            # Found at the beginning of the leader epoch.
            await self._copies.settle(assignment.work, assignment.broker_id)
        copied_offset = assignment.work.copied_offset
        if copied_offset is None:
            # Leadership moved on while this run looked; the next one begins again.
            return TaskOutcome(more_work=True)
        from_offset = first_offset_to_copy(copied_offset, log.log_start_offset)
        if from_offset > copied_offset + 1:
            log = await self._logs.describe(
                assignment,
                segments_from_offset=from_offset,
                max_segments=self._segments_per_run + 1,
            )
        candidates = select_candidates(log.segments, from_offset, log.last_stable_offset)
        return await self._copy_all(assignment, log, candidates)

    async def _copy_all(
        self, assignment: Assignment, log: LogDescription, candidates: list[RolledSegment]
    ) -> TaskOutcome:
        actions: list[TaskAction] = []
        for candidate in candidates[: self._segments_per_run]:
            if not self._registry.is_current(assignment):
                return TaskOutcome(actions=tuple(actions))
            wait_s = await self._quota_wait_s(assignment, candidate)
            if wait_s > 0:
                return TaskOutcome(
                    actions=tuple(actions), deferred=Deferral.COPY_QUOTA, retry_in_s=wait_s
                )
            actions.append(await self._copy_one(assignment, log, candidate))
        more = len(candidates) > self._segments_per_run
        return TaskOutcome(actions=tuple(actions), more_work=more)

    async def _quota_wait_s(self, assignment: Assignment, candidate: RolledSegment) -> float:
        """0: the copy may begin. A long wait is not waited for here: others may use this run's places."""
        key = TaskKey(assignment.topic_id_partition, TaskType.COPY)
        while 0 < (wait_s := self._turns.wait_s(key, candidate.size_bytes)) <= _SHORT_WAIT_S:
            await self._clock.sleep(wait_s)
        return wait_s

    async def _copy_one(
        self, assignment: Assignment, log: LogDescription, candidate: RolledSegment
    ) -> TaskAction:
        tip, work = assignment.topic_id_partition, assignment.work
        offsets = FiveOffsets.of(log, -1 if work.copied_offset is None else work.copied_offset)
        check_offsets(offsets, work, "before_copy")
        check_offsets(offsets.copied_up_to(candidate.end_offset), work, "after_copy")
        segment = copy_metadata(
            log, candidate, broker_id=assignment.broker_id, now_ms=self._clock.now_ms()
        )
        attributes: dict[str, int | str] = {
            "segment_id": str(segment.segment_id.id),
            "start_offset": segment.start_offset,
            "end_offset": segment.end_offset,
            "bytes": segment.segment_size_bytes,
        }
        self._telemetry.count("copy.requests", 1, tip.topic)
        with self._telemetry.span("copy segment", tip, attributes):
            await self._copies.copy(assignment, self._logs.broker(assignment), segment)
            self._telemetry.count("copy.bytes", segment.segment_size_bytes, tip.topic)
            if self._registry.is_current(assignment):
                await self._logs.tell_highest(assignment, segment.end_offset)
        return TaskAction(segment=segment, action=ActionKind.COPIED, reason="ROLLED")
