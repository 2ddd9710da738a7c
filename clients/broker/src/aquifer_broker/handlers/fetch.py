"""Fetch: local reads with a long poll, tiered reads through their own wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import structlog
from aquifer_core.ids import TopicIdPartition
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.view import TopicInfo
from aquifer_broker.handlers.fetch_read import FetchPass, FetchTarget, PartitionRead
from aquifer_broker.handlers.fetch_remote import read_remote
from aquifer_broker.handlers.services import BrokerServices, topic_key
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.protocol.client import Client
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.entities import millis
from aquifer_broker.protocol.traffic_metrics import fetched

__all__ = ["FetchHandler"]

logger = structlog.get_logger(__name__)


class FetchHandler:
    """Answers Fetch v4 to v17, without sessions: a request for one is answered with session id 0 (KIP-227)."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Waits for `min_bytes` up to `max_wait`, or for remote reads up to `remote.fetch.max.wait.ms`."""
        body = call.body
        if getattr(body, "session_id", 0) != 0:
            return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": ()}
        async with self._enough(body, self._targets(body), call.client) as reads:
            self._services.hot.fetched(
                call.client,
                local=any(read.size_bytes for read in reads),
                remote=any(read.remote for read in reads),
            )
            throttle_ms = await read_remote(self._services, reads)
            for read in reads:
                if read.size_bytes and read.target.topic is not None:
                    fetched(read.target.topic.topic, read.size_bytes)
            return {
                "throttle_time": throttle_ms,
                "error_code": ErrorCode.none,
                "session_id": 0,
                "responses": _by_topic(body, reads),
            }

    def _targets(self, body: Any) -> list[FetchTarget]:
        targets: list[FetchTarget] = []
        for requested in body.topics:
            topic = self._services.topic_of(requested)
            (name_or_id,) = topic_key(requested).values()
            targets.extend(
                FetchTarget(
                    key=(name_or_id, each.partition),
                    topic=_identity(topic, each.partition),
                    partition=each.partition,
                    fetch_offset=each.fetch_offset,
                    max_bytes=each.partition_max_bytes,
                    current_leader_epoch=getattr(each, "current_leader_epoch", -1),
                    last_fetched_epoch=getattr(each, "last_fetched_epoch", -1),
                )
                for each in requested.partitions
            )
        return targets

    @asynccontextmanager
    async def _enough(
        self, body: Any, targets: Sequence[FetchTarget], client: Client
    ) -> AsyncIterator[Sequence[PartitionRead]]:
        """Reads until it is enough, or time is up; holds nothing while it waits for more, which is read again."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + millis(body.max_wait) / 1000
        max_bytes = min(body.max_bytes, self._services.config.fetch_max_bytes)
        # More than it may get would be waited for in vain.
        min_bytes = min(body.min_bytes, max_bytes)
        while True:
            with self._pass(body, max_bytes, client) as fetch_pass:
                reads = [await fetch_pass.read(target) for target in targets]
                size_bytes = sum(read.size_bytes for read in reads)
                if (
                    size_bytes >= min_bytes
                    or (size_bytes and fetch_pass.cut_short)
                    or any(read.remote or read.ends_the_wait for read in reads)
                    or client.hurried
                    or loop.time() >= deadline_s
                ):
                    yield reads
                    return
            await _wait_for_appends(reads, min_bytes - size_bytes, deadline_s, client)

    def _pass(self, body: Any, max_bytes: int, client: Client) -> FetchPass:
        replica_id = _replica_id(body)
        return FetchPass(
            self._services,
            isolation=_isolation(replica_id, body.isolation_level),
            is_follower=replica_id >= 0,
            max_bytes=max_bytes,
            reader=client,
        )


def _identity(topic: TopicInfo | None, partition: int) -> TopicIdPartition | None:
    """None: nothing can have that identity."""
    return topic.id_of(partition) if topic is not None and partition >= 0 else None


def _replica_id(body: Any) -> int:
    state = getattr(body, "replica_state", None)
    replica_id: int = state.replica_id if state is not None else body.replica_id
    return replica_id


def _isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    if replica_id >= 0:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if isolation_level else FetchIsolation.HIGH_WATERMARK


async def _wait_for_appends(
    reads: Sequence[PartitionRead], missing_bytes: int, deadline_s: float, client: Client
) -> None:
    """Returns when so many bytes were appended since the reads, at the deadline, or when the client left."""
    moved = asyncio.Event()
    grown = [(read.hosted.log, read.log_size_bytes) for read in reads if read.hosted is not None]
    with ExitStack() as undo:
        undo.callback(client.watch(moved.set))
        for log, _ in grown:
            undo.callback(log.subscribe(moved.set))
        try:
            async with asyncio.timeout_at(deadline_s):
                while not client.hurried:
                    moved.clear()
                    appended = sum(abs(log.size_bytes - before) for log, before in grown)
                    if appended >= missing_bytes or _bound_moved(reads):
                        return
                    await moved.wait()
        except TimeoutError:
            return


def _bound_moved(reads: Sequence[PartitionRead]) -> bool:
    """Whether something became readable, or left, without being appended now."""
    for read in reads:
        if read.hosted is None or read.offsets is None:
            continue
        now = read.hosted.log.offsets
        before = read.offsets
        if now.log_end_offset == before.log_end_offset and now != before:
            return True
    return False


def _by_topic(body: Any, reads: Sequence[PartitionRead]) -> list[dict[str, Any]]:
    answers = iter(reads)
    return [
        {
            **topic_key(requested),
            "partitions": [_partition(next(answers)) for _ in requested.partitions],
        }
        for requested in body.topics
    ]


def _partition(read: PartitionRead) -> dict[str, Any]:
    offsets = read.offsets
    answer: dict[str, Any] = {
        "partition_index": read.target.partition,
        "error_code": read.error,
        "high_watermark": offsets.high_watermark if offsets else -1,
        "last_stable_offset": offsets.last_stable_offset if offsets else -1,
        "log_start_offset": offsets.log_start_offset if offsets else -1,
        "aborted_transactions": None,
        "records": read.records,
    }
    if read.aborted is not None:
        answer["aborted_transactions"] = [
            {"producer_id": each.producer_id, "first_offset": each.first_offset}
            for each in read.aborted
        ]
    if read.diverging is not None:
        epoch, end_offset = read.diverging
        answer["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    return answer
