"""Which questions a broker will be asked within a moment: those that its due tasks begin with."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final

from aquifer_core.ports import Clock

from aquifer_manager.domain.ports import LogQuery
from aquifer_manager.domain.registry import Registry
from aquifer_manager.domain.tasks import TaskKey, TaskType

__all__ = ["ExpectedDescribes"]

_REFRESH_SHARE: Final = 0.5
_USED_UP_SHARE: Final = 0.1
"""When there was more than a look takes, and that is used up."""
_MOST_TASKS: Final = 1000


class ExpectedDescribes:
    """Looks at the tasks that are due soon; one look serves all brokers for part of the moment, and each of its questions once."""

    def __init__(
        self,
        registry: Registry,
        due_within: Callable[[float, int], list[TaskKey]],
        *,
        clock: Clock,
        horizon_s: float,
        copy_max_segments: int,
    ) -> None:
        """Prepares.

        Args:
            registry: says who leads and follows.
            due_within: so many tasks at most of each kind, the first ones that are due within so many seconds.
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
        self._truncated = False
        self._by_address: dict[str, deque[LogQuery]] = {}

    def at(self, address: str) -> Iterator[LogQuery]:
        """What a broker will be asked. What is taken out is not told again before the next look."""
        looked_s_ago = self._clock.monotonic_s() - self._looked_s
        used_up = self._truncated and not self._by_address.get(address)
        if looked_s_ago >= self._horizon_s * (_USED_UP_SHARE if used_up else _REFRESH_SHARE):
            self._look()
        questions = self._by_address.get(address)
        while questions:
            yield questions.popleft()

    def _look(self) -> None:
        due = self._due_within(self._horizon_s, _MOST_TASKS)
        self._truncated = len(due) >= _MOST_TASKS
        self._looked_s = self._clock.monotonic_s()
        self._by_address = defaultdict(deque)
        for key in due:
            expected = self._expected(key)
            if expected is not None:
                address, query = expected
                self._by_address[address].append(query)

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
        if leader is None or leader.work.fenced:
            return None
        copied = leader.work.copied_offset
        query = LogQuery(
            topic_id_partition=tip,
            segments_from_offset=0 if copied is None else copied + 1,
            max_segments=self._copy_max_segments if key.type is TaskType.COPY else 0,
        )
        return leader.address, query
