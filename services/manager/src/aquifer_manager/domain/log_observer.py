"""Looks at the leaders' logs all the time, so that lag is known whether copies succeed or not (T03)."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Final

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.ports import BrokerConnections, LogDescription, LogQuery
from aquifer_manager.domain.registry import Registry

__all__ = ["LogObserver"]

logger = structlog.get_logger(__name__)

_LOGS_PER_CALL: Final = 500
_MAX_SEGMENTS: Final = 1000


class LogObserver:
    """Describes every led log of every registered broker, many at once."""

    def __init__(self, registry: Registry, brokers: BrokerConnections, *, clock: Clock) -> None:
        self._registry = registry
        self._brokers = brokers
        self._clock = clock

    async def observe(self) -> None:
        """One look at all logs. A broker that does not answer keeps its last state, and the others are still asked.

        Raises:
            AquiferError: of the last broker that did not answer.
        """
        by_address = self._by_address()
        results = await asyncio.gather(
            *(self._observe_all(address, some) for address, some in by_address.items()),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[-1]

    async def _observe_all(self, address: str, assignments: list[Assignment]) -> None:
        try:
            for some in _batches(assignments):
                await self._observe_some(address, some)
        except AquiferError as error:
            logger.warning("broker_not_observed", address=address, error=str(error))
            raise

    async def observe_one(self, tip: TopicIdPartition) -> None:
        """One look at one log. When the broker does not answer, what was last seen stays, which its age tells."""
        try:
            assignment = self._registry.observed_leader(tip)
            if assignment is not None:
                await self._observe_some(assignment.address, [assignment])
        except AquiferError as error:
            logger.debug("log_not_observed", topic=tip.topic, partition=tip.partition, error=error)

    def _by_address(self) -> dict[str, list[Assignment]]:
        found: dict[str, list[Assignment]] = defaultdict(list)
        for partition in self._registry.partitions():
            assignment = self._registry.observed_leader(partition.topic_id_partition)
            if assignment is not None:
                found[assignment.address].append(assignment)
        return found

    async def _observe_some(self, address: str, assignments: list[Assignment]) -> None:
        """Looks until all segments that are not remote were listed: after a long outage they are more than a page."""
        found: dict[TopicIdPartition, LogDescription] = {}
        queries = [
            _page(each.topic_id_partition, _next_offset(each.work.copied_offset))
            for each in assignments
        ]
        while queries:
            logs = await self._brokers.logs_at(address).describe_logs(queries)
            queries = []
            for log in logs:
                if log is None:
                    continue
                tip = log.topic_id_partition
                found[tip] = _joined(found.get(tip), log)
                if len(log.segments) >= _MAX_SEGMENTS:
                    ends_at = max(log.segments[-1].end_offset, log.highest_remote_offset)
                    queries.append(_page(tip, ends_at + 1))
        for assignment in assignments:
            seen = found.get(assignment.topic_id_partition)
            if seen is not None and seen.leader_epoch == assignment.leader_epoch:
                assignment.work.note_observed(seen, self._clock.now_ms())


def _batches(assignments: list[Assignment]) -> list[list[Assignment]]:
    return [
        assignments[start : start + _LOGS_PER_CALL]
        for start in range(0, len(assignments), _LOGS_PER_CALL)
    ]


def _page(tip: TopicIdPartition, from_offset: int) -> LogQuery:
    return LogQuery(
        topic_id_partition=tip, segments_from_offset=from_offset, max_segments=_MAX_SEGMENTS
    )


def _joined(before: LogDescription | None, log: LogDescription) -> LogDescription:
    """A log with the segments of all its pages."""
    return log if before is None else replace(log, segments=(*before.segments, *log.segments))


def _next_offset(copied_offset: int | None) -> int:
    return 0 if copied_offset is None else copied_offset + 1
