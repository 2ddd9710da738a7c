"""Answers why a segment is still local, not yet deleted, or unreadable."""

from collections.abc import Callable
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    NotLeaderError,
    RemoteResourceNotFoundError,
)
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from aquifer_core.ports import Clock, RemoteLogMetadataManager, RetentionPlan
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState

from aquifer_manager.domain.assignment import Assignment, RegisteredPartition
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.expiration_task import ExpirationTask
from aquifer_manager.domain.leader_log import LeaderLogs
from aquifer_manager.domain.partition_work import PartitionWork
from aquifer_manager.domain.paused_tasks import PausedTasks
from aquifer_manager.domain.ports import LogDescription
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.scheduler import Scheduler
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import EffectiveRetention
from aquifer_manager.domain.why_facts import Unknown, WhyFacts, reason_of_error
from aquifer_manager.domain.why_listing import (
    Choice,
    Holding,
    Listing,
    MostOverdue,
    OneSegment,
    read_listing,
)
from aquifer_manager.domain.why_local import LocalSegment, explain_local, local_segments
from aquifer_manager.domain.why_reading import ReadExplainer
from aquifer_manager.domain.why_reasons import Explanation, WhyQuestion, WhyReason
from aquifer_manager.domain.why_remote import explain_not_deleted

__all__ = ["Explainer"]

_MAX_SEGMENTS: Final = 20_000
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Explainer:
    """Collects what is known of a partition now and derives answers from it."""

    def __init__(
        self,
        registry: Registry,
        scheduler: Scheduler,
        logs: LeaderLogs,
        metadata: RemoteLogMetadataManager,
        expiration: ExpirationTask,
        *,
        failures: DeletionFailures,
        reading: ReadExplainer,
        pauses: PausedTasks,
        clock: Clock,
    ) -> None:
        """Prepares.

        Args:
            registry: says who leads.
            scheduler: knows the tasks.
            logs: describes the leader's log.
            metadata: lists segments.
            expiration: plans retention.
            failures: deletions that fail.
            reading: tries reads.
            pauses: what operators paused.
            clock: wall clock.
        """
        self._registry = registry
        self._scheduler = scheduler
        self._logs = logs
        self._metadata = metadata
        self._expiration = expiration
        self._failures = failures
        self._reading = reading
        self._pauses = pauses
        self._clock = clock

    async def explain_partition(self, tip: TopicIdPartition) -> list[Explanation]:
        """What is most overdue: the oldest local segments, unfinished and oldest remote ones, and the first cold offset."""
        facts = await self._facts(tip, MostOverdue())
        local = _oldest_local(facts)
        unfinished = [each for each in facts.chosen() if each.state is not _FINISHED]
        oldest = [each for each in facts.chosen() if each.state is _FINISHED]
        answers = _local_answers(facts, lambda segment: segment in local)
        answers += _remote_answers(facts, [*unfinished, *oldest])
        log = facts.log
        if not isinstance(log, Unknown) and log.log_start_offset < log.local_log_start_offset:
            answers.append(await self._reading.explain(tip, facts, log.log_start_offset))
        return answers

    async def explain_offset(self, tip: TopicIdPartition, offset: int) -> list[Explanation]:
        """The segments that hold an offset."""
        facts = await self._facts(tip, Holding(offset), to_offset=offset)
        answers = _local_answers(
            facts, lambda segment: segment.start_offset <= offset <= segment.end_offset
        )
        answers += _remote_answers(facts, facts.chosen())
        answers.append(await self._reading.explain(tip, facts, offset))
        return answers

    async def explain_segment(
        self, tip: TopicIdPartition, segment_id: KafkaUuid
    ) -> list[Explanation]:
        """A remote segment, and the local one that holds its first offset.

        Raises:
            RemoteResourceNotFoundError: metadata does not have it (SEGMENT_NOT_FOUND).
            AquiferError: metadata could not be asked.
        """
        facts = await self._facts(tip, OneSegment(segment_id))
        if isinstance(facts.listing, Unknown) and facts.listing.error is not None:
            raise facts.listing.error
        found = facts.chosen()
        if not found:
            raise RemoteResourceNotFoundError(
                f"metadata has no segment {segment_id} of {tip}",
                metadata={"segmentId": str(segment_id)},
            )
        start = found[0].start_offset
        if not isinstance(facts.log, Unknown):
            start = min(max(start, facts.log.log_start_offset), found[0].end_offset)
        answers = _local_answers(
            facts, lambda segment: segment.start_offset <= start <= segment.end_offset
        )
        answers += _remote_answers(facts, found)
        answers.append(await self._reading.explain(tip, facts, start))
        return answers

    async def _facts(
        self, tip: TopicIdPartition, choice: Choice, *, to_offset: int | None = None
    ) -> WhyFacts:
        """Everything that answers are derived from, as it is now."""
        partition = self._registry.get(tip)
        keys = [TaskKey(tip, kind) for kind in TaskType]
        assignment = self._registry.observed_leader(tip)
        log = await self._log(assignment)
        retention = self._retention(partition)
        now_ms = self._clock.now_ms()
        listing = await self._listed(
            tip,
            choice,
            work=None if partition is None else partition.work,
            log=None if isinstance(log, Unknown) else log,
            kept_from_ms=_kept_from_ms(retention, now_ms),
            to_offset=to_offset,
        )
        return WhyFacts(
            now_ms=now_ms,
            config=None if partition is None else partition.config,
            work=None if partition is None else partition.work,
            log=log,
            listing=listing,
            plan=await self._plan(assignment, log),
            tasks={state.key.type: state for state in self._scheduler.states(keys)},
            pauses=self._pauses.of(tip),
            failing={
                each.segment.segment_id.id: each
                for each in self._failures.failing()
                if each.segment.topic_id_partition == tip
            },
            retention=retention,
            copy_abandoned_after_ms=self._expiration.copy_abandoned_after_ms,
        )

    def _retention(self, partition: RegisteredPartition | None) -> EffectiveRetention | None:
        return None if partition is None else self._expiration.retention(partition.config)

    async def _log(self, assignment: Assignment | None) -> LogDescription | Unknown:
        if assignment is None:
            text = "no broker that leads it is registered with this manager"
            return Unknown(reason=WhyReason.LEADER_UNKNOWN, text=text)
        try:
            return await self._logs.describe(assignment, max_segments=_MAX_SEGMENTS)
        except NotLeaderError as error:
            return Unknown(reason=WhyReason.LEADERSHIP_MOVED, text=error.message, error=error)
        except AquiferError as error:
            text = f"broker {assignment.broker_id} at {assignment.address}: {error.message}"
            return Unknown(reason=WhyReason.BROKER_UNREACHABLE, text=text, error=error)

    async def _listed(
        self,
        tip: TopicIdPartition,
        choice: Choice,
        *,
        work: PartitionWork | None,
        log: LogDescription | None,
        kept_from_ms: int | None,
        to_offset: int | None,
    ) -> Listing | Unknown:
        try:
            return await read_listing(
                self._metadata,
                tip,
                choice,
                work=work,
                log=log,
                kept_from_ms=kept_from_ms,
                to_offset=to_offset,
            )
        except AquiferError as error:
            reason = reason_of_error(error.reason.value, WhyReason.METADATA_UNREACHABLE)
            return Unknown(reason=reason, text=error.message, error=error)

    async def _plan(
        self, assignment: Assignment | None, log: LogDescription | Unknown
    ) -> RetentionPlan | None:
        if assignment is None or isinstance(log, Unknown):
            return None
        try:
            return await self._expiration.plan(assignment, log)
        except AquiferError:
            # The listing of the same metadata says why.
            return None


def _kept_from_ms(retention: EffectiveRetention | None, now_ms: int) -> int | None:
    return (
        None if retention is None or retention.retention_ms < 0 else now_ms - retention.retention_ms
    )


def _oldest_local(facts: WhyFacts) -> list[LocalSegment]:
    """The oldest local segment and the oldest one that is not remote; the same when nothing is."""
    if isinstance(facts.log, Unknown):
        return []
    highest = facts.highest_remote_offset()
    segments = list(local_segments(facts.log))
    alone = [each for each in segments if each.active or each.end_offset > highest]
    return [segments[0], alone[0]]


def _local_answers(facts: WhyFacts, wanted: Callable[[LocalSegment], bool]) -> list[Explanation]:
    log = facts.log
    if isinstance(log, Unknown):
        return [_unknown(WhyQuestion.STILL_LOCAL, log)]
    return [
        explain_local(facts, log, segment) for segment in local_segments(log) if wanted(segment)
    ]


def _remote_answers(facts: WhyFacts, segments: list[RemoteLogSegmentMetadata]) -> list[Explanation]:
    if isinstance(facts.listing, Unknown):
        return [_unknown(WhyQuestion.NOT_DELETED, facts.listing)]
    return [explain_not_deleted(facts, segment) for segment in segments]


def _unknown(question: WhyQuestion, unknown: Unknown) -> Explanation:
    error = unknown.error
    return Explanation(
        question=question,
        reason=unknown.reason,
        text=unknown.text,
        start_offset=0,
        end_offset=-1,
        last_error_reason="" if error is None else error.reason.value,
        last_error="" if error is None else error.message,
    )
