"""Deletes expired remote segments of a partition that a broker leads (SR-10, SR-11, SR-17, K-3.4)."""

from dataclasses import replace

import structlog
from aquifer_core.errors import AquiferError, RemoteResourceNotFoundError, StaleLeaderEpochError
from aquifer_core.ports import (
    Clock,
    RemoteLogMetadataManager,
    RetentionCandidate,
    RetentionPlan,
    RetentionPolicy,
    RetentionReason,
)

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.offset_constraints import FiveOffsets, check_offsets
from aquifer_manager.domain.ports import LogDescription, Telemetry
from aquifer_manager.domain.quiet_retention import QuietRetention
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.segment_copy import SegmentCopy
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.tasks import ActionKind, TaskAction, TaskKey, TaskOutcome
from aquifer_manager.domain.topic_config import (
    EffectiveRetention,
    RetentionOverrides,
    TopicConfig,
    effective_retention,
)

__all__ = ["ExpirationTask"]

logger = structlog.get_logger(__name__)

_NOTHING = RetentionPlan(candidates=(), new_log_start_offset=None, remote_bytes=0)


class ExpirationTask:
    """Asks metadata what retention deletes, raises the log start, then deletes one segment after the other.

    A segment that cannot be deleted stays DELETE_SEGMENT_STARTED, is counted, and is chosen again by the next run; the others go on.
    """

    def __init__(
        self,
        registry: Registry,
        logs: LeaderLogs,
        metadata: RemoteLogMetadataManager,
        deletion: SegmentDeletion,
        copies: SegmentCopy,
        *,
        quiet: QuietRetention,
        clock: Clock,
        telemetry: Telemetry,
        overrides: RetentionOverrides,
        copy_abandoned_after_ms: int,
        segments_per_run: int = 1000,
    ) -> None:
        """Prepares.

        Args:
            registry: says for whom to work.
            logs: describes the leader's log.
            metadata: decides.
            deletion: deletes single segments.
            copies: ends copies that a copy task no longer does.
            quiet: remembers where there is nothing to delete.
            clock: wall clock.
            telemetry: spans and counters.
            overrides: retention for topics that set none for remote segments.
            copy_abandoned_after_ms: age of a copy begun and never finished after which it is garbage.
            segments_per_run: after these the task goes to the end of the queue, due at once.
        """
        self._registry = registry
        self._logs = logs
        self._metadata = metadata
        self._deletion = deletion
        self._copies = copies
        self._quiet = quiet
        self._clock = clock
        self._telemetry = telemetry
        self._overrides = overrides
        self.copy_abandoned_after_ms = copy_abandoned_after_ms
        self._segments_per_run = segments_per_run

    async def run(self, key: TaskKey) -> TaskOutcome:
        """One run.

        Raises:
            AquiferError: a step failed, or some segments could not be deleted; the next run goes on.
        """
        assignment = self._registry.leader(key.topic_id_partition)
        if assignment is None:
            return TaskOutcome()
        tip = key.topic_id_partition
        with self._telemetry.span("expire", tip, {"leader_epoch": assignment.leader_epoch}):
            try:
                return await self._run(assignment)
            except StaleLeaderEpochError as error:
                self._logs.fence(assignment, error)
                raise

    async def dry_run(self, key: TaskKey) -> TaskOutcome:
        """What a run would delete now, and why; changes nothing.

        Raises:
            RemoteResourceNotFoundError: the partition's leader is not registered here.
        """
        tip = key.topic_id_partition
        assignment = self._registry.leader(tip)
        if assignment is None:
            raise RemoteResourceNotFoundError(f"the leader of {tip} is not registered here")
        log = await self._logs.describe(assignment)
        plan = await self.plan(assignment, log)
        return TaskOutcome(actions=tuple(_action(candidate) for candidate in plan.candidates))

    async def _run(self, assignment: Assignment) -> TaskOutcome:
        if assignment.config.remote_log_copy_disable:
            # No copy task is left to end what it began, and retention stops at copies in progress.
            await self._copies.settle(assignment.work, assignment.broker_id)
        log = await self._logs.prepare(assignment)
        await self._logs.record_log_start(assignment, log.log_start_offset)
        plan = await self._due_plan(assignment, log)
        if plan is None or not plan.candidates:
            return TaskOutcome()
        await self._raise_log_start(assignment, log, plan)
        # Those that just failed go last: however many they are, they keep no other from being deleted.
        ordered = sorted(
            plan.candidates, key=lambda each: self._deletion.last_failure_ms(each.metadata)
        )
        chosen = ordered[: self._segments_per_run]
        actions, failures = await self._delete_all(assignment, chosen)
        more = len(ordered) > len(chosen)
        if failures and not (more and actions):
            raise failures[0]
        return TaskOutcome(actions=tuple(actions), more_work=more)

    def retention(self, config: TopicConfig) -> EffectiveRetention:
        """What remote segments of a topic are judged by."""
        return effective_retention(config, self._overrides)

    async def plan(self, assignment: Assignment, log: LogDescription) -> RetentionPlan:
        """What retention would delete now, given the leader's log; changes nothing.

        Raises:
            AquiferError: metadata did not answer.
        """
        return await self._plan(assignment, log, self._policy(assignment, log))

    async def _due_plan(self, assignment: Assignment, log: LogDescription) -> RetentionPlan | None:
        """The plan of a run; None when it is certain that there is nothing to delete."""
        work, policy = assignment.work, self._policy(assignment, log)
        if self._quiet.holds(work, log, policy):
            return None
        summary = await self._quiet.summary(work, policy)
        if summary is None:
            return await self._plan(assignment, log, policy)
        plan = _NOTHING if not summary.segments else await self._plan(assignment, log, policy)
        self._quiet.note(work, log, policy, plan, summary)
        return plan

    def _policy(self, assignment: Assignment, log: LogDescription) -> RetentionPolicy:
        retention = self.retention(assignment.config)
        return RetentionPolicy(
            retention_ms=retention.retention_ms,
            retention_bytes=retention.retention_bytes,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            local_only_bytes=assignment.work.local_only_bytes(log),
            in_progress=frozenset(assignment.work.in_progress),
            copy_abandoned_after_ms=self.copy_abandoned_after_ms,
        )

    async def _plan(
        self, assignment: Assignment, log: LogDescription, policy: RetentionPolicy
    ) -> RetentionPlan:
        tip, now_ms = assignment.topic_id_partition, self._clock.now_ms()
        plan = await self._metadata.list_retention_candidates(tip, log.lineage(), policy, now_ms)
        if not policy.local_only_bytes or not _goes_by_size(plan):
            return plan
        highest_end = await self._logs.highest_remote_end(assignment)
        if assignment.work.knows_all_copies(log, highest_end):
            return plan
        # Another manager copies: what it has finished by now may have been counted as only local, too.
        policy = replace(policy, local_only_bytes=0)
        return await self._metadata.list_retention_candidates(tip, log.lineage(), policy, now_ms)

    async def _raise_log_start(
        self, assignment: Assignment, log: LogDescription, plan: RetentionPlan
    ) -> None:
        """Before anything is deleted: no reader is sent to a segment that is about to go."""
        work = assignment.work
        highest = -1 if work.copied_offset is None else work.copied_offset
        offsets = FiveOffsets.of(log, highest)
        check_offsets(offsets, work, "before_delete")
        new_start = plan.new_log_start_offset
        if new_start is None or new_start <= log.log_start_offset:
            return
        check_offsets(offsets.starting_at(new_start), work, "after_delete")
        await self._logs.raise_log_start(assignment, new_start)

    async def _delete_all(
        self, assignment: Assignment, candidates: list[RetentionCandidate]
    ) -> tuple[list[TaskAction], list[AquiferError]]:
        actions: list[TaskAction] = []
        failures: list[AquiferError] = []
        for candidate in candidates:
            if not self._registry.is_current(assignment):
                break
            try:
                await self._deletion.delete(
                    candidate.metadata,
                    reason=candidate.reason.value,
                    broker_id=assignment.broker_id,
                    leader_epoch=assignment.leader_epoch,
                )
            except StaleLeaderEpochError:
                raise
            except AquiferError as error:
                failures.append(error)
                self._log_failure(candidate, error)
            else:
                assignment.work.deleted_segments += 1
                actions.append(_action(candidate))
        return actions, failures

    def _log_failure(self, candidate: RetentionCandidate, error: AquiferError) -> None:
        segment = candidate.metadata
        logger.warning(
            "segment_deletion_failed",
            topic=segment.topic_id_partition.topic,
            partition=segment.topic_id_partition.partition,
            segment_id=str(segment.segment_id.id),
            why=candidate.reason.value,
            reason=error.reason.value,
            error=str(error),
        )


def _goes_by_size(plan: RetentionPlan) -> bool:
    return any(each.reason is RetentionReason.RETENTION_SIZE for each in plan.candidates)


def _action(candidate: RetentionCandidate) -> TaskAction:
    return TaskAction(
        segment=candidate.metadata, action=ActionKind.DELETED, reason=candidate.reason.value
    )
