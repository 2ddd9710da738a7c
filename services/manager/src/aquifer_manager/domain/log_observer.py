"""Looks at the leaders' logs all the time, so that lag is known whether copies succeed or not (T03)."""

import asyncio
from collections import defaultdict
from typing import Final

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock

from aquifer_manager.domain.assignment import Assignment
from aquifer_manager.domain.ports import BrokerConnections, LogQuery
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
        queries = [
            LogQuery(
                topic_id_partition=assignment.topic_id_partition,
                segments_from_offset=_next_offset(assignment.work.copied_offset),
                max_segments=_MAX_SEGMENTS,
            )
            for assignment in assignments
        ]
        logs = await self._brokers.logs_at(address).describe_logs(queries)
        for assignment, log in zip(assignments, logs, strict=True):
            if log is not None and log.leader_epoch == assignment.leader_epoch:
                assignment.work.note_observed(log, self._clock.now_ms())


def _batches(assignments: list[Assignment]) -> list[list[Assignment]]:
    return [
        assignments[start : start + _LOGS_PER_CALL]
        for start in range(0, len(assignments), _LOGS_PER_CALL)
    ]


def _next_offset(copied_offset: int | None) -> int:
    return 0 if copied_offset is None else copied_offset + 1
