"""Which questions a broker will be asked within a moment: those that its due tasks begin with."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from aquifer_core.ports import Clock

from aquifer_manager.domain.ports import LogQuery
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.tasks import TaskKey, TaskType

__all__ = ["ExpectedDescribes"]

_REFRESH_SHARE: Final = 0.5


class ExpectedDescribes:
    """Looks at the tasks that are due soon; one look serves all brokers for part of the moment."""

    def __init__(
        self,
        registry: Registry,
        due_within: Callable[[float], list[TaskKey]],
        *,
        clock: Clock,
        horizon_s: float,
        copy_max_segments: int,
    ) -> None:
        """Prepares.

        Args:
            registry: says who leads and follows.
            due_within: tasks due within so many seconds.
            clock: measures.
            horizon_s: how far to look ahead.
            copy_max_segments: how many segments a copy task asks for.
        """
        self._registry = registry
        self._due_within = due_within
        self._clock = clock
        self._horizon_s = horizon_s
        self._copy_max_segments = copy_max_segments
        self._looked_s = float("-inf")
        self._by_address: dict[str, list[LogQuery]] = {}

    def at(self, address: str) -> Sequence[LogQuery]:
        """What a broker will be asked."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= self._horizon_s * _REFRESH_SHARE:
            self._looked_s = now_s
            self._by_address = self._look()
        return self._by_address.get(address, ())

    def _look(self) -> dict[str, list[LogQuery]]:
        found: dict[str, list[LogQuery]] = defaultdict(list)
        for key in self._due_within(self._horizon_s):
            expected = self._expected(key)
            if expected is not None:
                address, query = expected
                found[address].append(query)
        return found

    def _expected(self, key: TaskKey) -> tuple[str, LogQuery] | None:
        tip = key.topic_id_partition
        if key.type is TaskType.FOLLOWER:
            follower = self._registry.follower(tip, key.broker_id)
            return (
                None if follower is None else (follower.address, LogQuery(topic_id_partition=tip))
            )
        if key.type not in (TaskType.COPY, TaskType.EXPIRATION):
            return None
        leader = self._registry.observed_leader(tip)
        if leader is None or leader.work.fenced or leader.work.copied_offset is None:
            return None
        query = LogQuery(
            topic_id_partition=tip,
            segments_from_offset=leader.work.copied_offset + 1,
            max_segments=self._copy_max_segments if key.type is TaskType.COPY else 0,
        )
        return leader.address, query
