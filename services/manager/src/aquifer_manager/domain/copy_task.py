"""Copies rolled segments of a partition that a broker leads (SR-16, K-3.2)."""

from dataclasses import replace

from aquifer_core.errors import StaleLeaderEpochError
from aquifer_core.ports import Clock

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.copy_candidates import first_offset_to_copy, select_candidates
from aquifer_manager.domain.copy_run import CopyParts, CopyRun
from aquifer_manager.domain.copy_turns import CopyTurns
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.ports import LogDescription, RolledSegment, Telemetry
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.tasks import Deferral, TaskKey, TaskOutcome
from aquifer_manager.domain.upload_slots import UploadSlots

__all__ = ["CopyTask"]


class CopyTask:
    """Runs copies: a few segments a run, oldest first, several at once; the first failure ends the run.

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
        segments_at_once: int = 3,
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
            segments_at_once: uploads of one partition at the same time.
        """
        self._registry = registry
        self._logs = logs
        self._copies = copies
        self._uploads = uploads
        self._telemetry = telemetry
        self._segments_per_run = segments_per_run
        self._parts = CopyParts(
            registry=registry,
            logs=logs,
            copies=copies,
            turns=turns,
            uploads=uploads,
            clock=clock,
            telemetry=telemetry,
            at_once=segments_at_once,
        )

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
        run = CopyRun(self._parts, assignment, log)
        try:
            outcome = await run.copy(candidates[: self._segments_per_run])
        finally:
            self._logs.tell_index(assignment, log)
        more = len(candidates) > self._segments_per_run and outcome.deferred is None
        return replace(outcome, more_work=more and self._registry.is_current(assignment))
