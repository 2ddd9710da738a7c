"""Partitions of which retention has nothing to delete, and for how long that is certain.

A run of an expiration mostly finds nothing. What could change that is known: the partition's metadata (its version tells), the
leader's lineage and log start, the topic's retention, bytes that are not remote yet, and time, which makes the oldest segment
expire. As long as none of these did, metadata need not be asked what retention deletes. Versions are confirmed for many partitions
with one question, once an interval.
"""

from dataclasses import replace

from aquifer_core.partition_summary import PartitionSummary
from aquifer_core.ports import Clock, RetentionPlan, RetentionPolicy

from aquifer_manager.domain.partition_facts import PartitionFacts
from aquifer_manager.domain.partition_work import PartitionWork, QuietPlan
from aquifer_manager.domain.ports import LogDescription
from aquifer_manager.domain.registry import Registry

__all__ = ["QuietRetention"]


class QuietRetention:
    """Remembers empty plans with the partition's work, and confirms them."""

    def __init__(
        self, registry: Registry, facts: PartitionFacts, *, clock: Clock, confirmed_for_s: float
    ) -> None:
        """Prepares.

        Args:
            registry: knows the partitions.
            facts: metadata.
            clock: measures.
            confirmed_for_s: a version that was not confirmed for this long is not trusted.
        """
        self._registry = registry
        self._facts = facts
        self._clock = clock
        self._confirmed_for_s = confirmed_for_s

    def holds(self, work: PartitionWork, log: LogDescription, policy: RetentionPolicy) -> bool:
        """Whether there is certainly nothing to delete now."""
        quiet = work.quiet
        if quiet is None or policy.in_progress:
            return False
        return (
            self._clock.monotonic_s() - quiet.confirmed_s <= self._confirmed_for_s
            and (quiet.until_ms is None or self._clock.now_ms() < quiet.until_ms)
            and quiet.lineage == log.leader_epochs
            and quiet.log_start_offset == log.log_start_offset
            and quiet.log_end_offset <= log.log_end_offset
            and quiet.retention_ms == policy.retention_ms
            and quiet.retention_bytes == policy.retention_bytes
            and _small(policy, quiet.remote_bytes)
        )

    async def summary(
        self, work: PartitionWork, policy: RetentionPolicy
    ) -> PartitionSummary | None:
        """The partition in numbers, to be read before a plan is asked for; None when it is of no use."""
        work.quiet = None
        if policy.in_progress:
            return None
        return await self._facts.summary(work.topic_id_partition)

    def note(
        self,
        work: PartitionWork,
        log: LogDescription,
        policy: RetentionPolicy,
        plan: RetentionPlan,
        summary: PartitionSummary,
    ) -> None:
        """Takes note of a plan made after the summary was read."""
        if (
            plan.candidates
            or plan.new_log_start_offset is not None
            or summary.unfinished_segments
            or summary.highest_end_offset >= log.log_end_offset
        ):
            return
        expires = summary.segments > 0 and policy.retention_ms >= 0
        work.quiet = QuietPlan(
            version=summary.version,
            confirmed_s=self._clock.monotonic_s(),
            lineage=log.leader_epochs,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            retention_ms=policy.retention_ms,
            retention_bytes=policy.retention_bytes,
            remote_bytes=plan.remote_bytes,
            until_ms=summary.oldest_timestamp_ms + policy.retention_ms if expires else None,
        )

    async def confirm(self) -> None:
        """Asks metadata whether versions are still what they were; what changed is looked at by the next run.

        Raises:
            AquiferError: metadata did not answer. What is not confirmed for long is not trusted.
        """
        quiet = {
            partition.topic_id_partition: (partition.work, partition.work.quiet)
            for partition in self._registry.partitions()
            if partition.work.quiet is not None
        }
        asked_s = self._clock.monotonic_s()
        known = {tip: plan.version for tip, (_, plan) in quiet.items() if plan is not None}
        changed = await self._facts.changed(known)
        for tip, (work, plan) in quiet.items():
            if plan is None or work.quiet is not plan:
                continue
            work.quiet = None if tip in changed else replace(plan, confirmed_s=asked_s)


def _small(policy: RetentionPolicy, remote_bytes: int) -> bool:
    return policy.retention_bytes < 0 or (
        policy.local_only_bytes + remote_bytes <= policy.retention_bytes
    )
