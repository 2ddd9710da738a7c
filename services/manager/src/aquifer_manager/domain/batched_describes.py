"""One description of many logs instead of one for each task: what tasks of a broker ask for goes out together (SR-18).

Every run begins by describing its log. While a call is under way, further questions wait and leave with the next one. Each call also
takes along the questions of tasks that are due within a moment; their answers are kept for that moment, so that a manager with
thousands of partitions asks each broker about once a moment and not once a run.

An answer that was fetched ahead is given away once, and only to exactly the question it answers, which names the highest remote
offset known: after a copy the question is another one. Whatever makes a task due early (a rolled segment, raised log start, changed
settings, an operator) forgets the answers that were fetched ahead for its partition.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from aquifer_core.errors import ErrorReason, UnavailableError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import Clock
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata

from aquifer_manager.domain.ports import BrokerConnections, BrokerLogs, LogDescription, LogQuery

__all__ = ["BatchedBrokers"]

_CALLS_AHEAD: Final = 2
"""Answers kept at most, as a number of full calls."""

Expected = Callable[[str], Iterable[LogQuery]]


@dataclass(slots=True, kw_only=True)
class _Ahead:
    """An answer fetched ahead."""

    log: LogDescription | None
    fetched_s: float


@dataclass(slots=True, kw_only=True)
class _Asked:
    """Questions to one broker.

    Attributes:
        waiting: asked and not yet sent.
        ahead: answers nobody has asked for yet, by partition.
        on_the_way: partitions that are being asked about ahead of time.
        dropped_s: when answers that are too old were dropped.
    """

    waiting: list[tuple[LogQuery, asyncio.Future[LogDescription | None]]] = field(
        default_factory=list
    )
    ahead: dict[TopicIdPartition, dict[LogQuery, _Ahead]] = field(default_factory=dict)
    on_the_way: set[TopicIdPartition] = field(default_factory=set)
    sender: asyncio.Task[None] | None = None
    dropped_s: float = float("-inf")


class BatchedBrokers:
    """Implements `BrokerConnections` over another one; calls other than single descriptions pass through."""

    def __init__(
        self,
        brokers: BrokerConnections,
        *,
        clock: Clock,
        keep_s: float = 1.0,
        max_logs: int = 500,
    ) -> None:
        """Prepares.

        Args:
            brokers: the connections.
            clock: measures the age of answers.
            keep_s: answers fetched ahead are older than this to nobody.
            max_logs: in one call.
        """
        self._brokers = brokers
        self._clock = clock
        self._keep_s = keep_s
        self._max_logs = max_logs
        self._asked: dict[str, _Asked] = {}
        self._expected: Expected = lambda _: ()

    def expect(self, expected: Expected) -> None:
        """Says where the questions that a broker will be asked within a moment come from, most urgent first.

        No more are taken than fit into a call.
        """
        self._expected = expected

    def logs_at(self, address: str) -> BrokerLogs:
        """See `BrokerConnections`."""
        return _BatchedLogs(self, address, self._brokers.logs_at(address))

    def forget_answers(self, tip: TopicIdPartition) -> None:
        """Something changed in a partition: what was fetched ahead for it is of no use."""
        for asked in self._asked.values():
            asked.on_the_way.discard(tip)
            asked.ahead.pop(tip, None)

    async def forget(self, address: str) -> None:
        """See `BrokerConnections`. Whoever waits for an answer is told that there is none."""
        await self._end(address)
        await self._brokers.forget(address)

    async def close(self) -> None:
        """Ends all questions; idempotent. The connections stay with their owner."""
        for address in list(self._asked):
            await self._end(address)

    async def _end(self, address: str) -> None:
        asked = self._asked.pop(address, None)
        if asked is None or asked.sender is None:
            return
        asked.sender.cancel()
        await asyncio.gather(asked.sender, return_exceptions=True)
        # A task that is cancelled before it began does nothing at all.
        _fail(asked.waiting, _given_up(address))

    async def describe(self, address: str, query: LogQuery) -> LogDescription | None:
        """The answer to one question, fetched ahead or with others."""
        asked = self._asked.setdefault(address, _Asked())
        known = self._take(asked, query)
        if known is not None and self._clock.monotonic_s() - known.fetched_s <= self._keep_s:
            return known.log
        answer: asyncio.Future[LogDescription | None] = asyncio.get_running_loop().create_future()
        asked.waiting.append((query, answer))
        if asked.sender is None or asked.sender.done():
            # In no run's context: the call serves many.
            asked.sender = asyncio.create_task(
                self._send_all(address, asked),
                name=f"describe logs at {address}",
                context=contextvars.Context(),
            )
        return await answer

    def _take(self, asked: _Asked, query: LogQuery) -> _Ahead | None:
        answers = asked.ahead.get(query.topic_id_partition)
        if answers is None:
            return None
        known = answers.pop(query, None)
        if not answers:
            del asked.ahead[query.topic_id_partition]
        return known

    async def _send_all(self, address: str, asked: _Asked) -> None:
        try:
            await asyncio.sleep(0)  # whoever is about to ask as well
            while asked.waiting:
                batch = asked.waiting[: self._max_logs]
                del asked.waiting[: self._max_logs]
                await self._send(address, asked, batch)
        finally:
            _fail(asked.waiting, _given_up(address))
            asked.waiting.clear()

    async def _send(
        self,
        address: str,
        asked: _Asked,
        batch: list[tuple[LogQuery, asyncio.Future[LogDescription | None]]],
    ) -> None:
        try:
            ahead = self._ahead(address, asked, batch)
            asked.on_the_way = {query.topic_id_partition for query in ahead}
            fetched_s = self._clock.monotonic_s()
            queries = [*(query for query, _ in batch), *ahead]
            logs = await self._brokers.logs_at(address).describe_logs(queries)
        except asyncio.CancelledError:
            _fail(batch, _given_up(address))
            raise
        except Exception as error:
            _fail(batch, error)
            return
        for (_, answer), log in zip(batch, logs, strict=False):
            if not answer.done():
                answer.set_result(log)
        for query, log in zip(ahead, logs[len(batch) :], strict=False):
            tip = query.topic_id_partition
            if tip in asked.on_the_way:
                asked.ahead.setdefault(tip, {})[query] = _Ahead(log=log, fetched_s=fetched_s)

    def _ahead(
        self,
        address: str,
        asked: _Asked,
        batch: list[tuple[LogQuery, asyncio.Future[LogDescription | None]]],
    ) -> list[LogQuery]:
        """Questions to take along; none while there are many answers to give away."""
        self._drop_old(asked)
        kept = sum(map(len, asked.ahead.values()))
        room = min(self._max_logs - len(batch), self._max_logs * _CALLS_AHEAD - kept)
        if room <= 0:
            return []
        asking = {query for query, _ in batch}
        fresh: dict[LogQuery, None] = {}
        for query in self._expected(address):
            if query not in asking and query not in asked.ahead.get(query.topic_id_partition, ()):
                fresh[query] = None
            if len(fresh) >= room:
                break
        return list(fresh)

    def _drop_old(self, asked: _Asked) -> None:
        """Drops answers that are too old to be given away."""
        now_s = self._clock.monotonic_s()
        if now_s - asked.dropped_s < self._keep_s / 4:
            return
        asked.dropped_s = now_s
        asked.ahead = {
            tip: kept
            for tip, answers in asked.ahead.items()
            if (
                kept := {
                    query: known
                    for query, known in answers.items()
                    if now_s - known.fetched_s <= self._keep_s
                }
            )
        }


class _BatchedLogs:
    """The logs of one broker; implements `BrokerLogs`."""

    def __init__(self, batches: BatchedBrokers, address: str, logs: BrokerLogs) -> None:
        self._batches = batches
        self._address = address
        self._logs = logs

    async def describe_logs(self, queries: Sequence[LogQuery]) -> list[LogDescription | None]:
        """See `BrokerLogs`."""
        if len(queries) != 1:
            return await self._logs.describe_logs(queries)
        return [await self._batches.describe(self._address, queries[0])]

    async def copy_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        leader_epoch: int,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> CopyResult:
        """See `BrokerLogs`."""
        return await self._logs.copy_segment(metadata, leader_epoch, on_progress=on_progress)

    async def update_remote_log_offsets(
        self,
        topic_id_partition: TopicIdPartition,
        leader_epoch: int,
        *,
        log_start_offset: int | None = None,
        highest_remote_offset: int | None = None,
    ) -> int:
        """See `BrokerLogs`."""
        return await self._logs.update_remote_log_offsets(
            topic_id_partition,
            leader_epoch,
            log_start_offset=log_start_offset,
            highest_remote_offset=highest_remote_offset,
        )

    async def roll_segment(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> int:
        """See `BrokerLogs`."""
        return await self._logs.roll_segment(topic_id_partition, leader_epoch)


def _fail(
    waiting: list[tuple[LogQuery, asyncio.Future[LogDescription | None]]], error: Exception
) -> None:
    for _, answer in waiting:
        if not answer.done():
            answer.set_exception(error)


def _given_up(address: str) -> UnavailableError:
    return UnavailableError(
        f"the connection to {address} was given up", reason=ErrorReason.PEER_UNAVAILABLE
    )
