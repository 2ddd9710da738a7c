"""ListOffsets: earliest, latest, tiered and by time (K-3.9, SR-26, SR-27)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import structlog
from aquifer_core.errors import AquiferError, ErrorReason, RemoteStorageUnavailableError
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices, topic_key
from aquifer_broker.log.log_values import TimestampAndOffset
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.entities import millis

__all__ = ["ListOffsetsHandler"]

logger = structlog.get_logger(__name__)


class _Special(IntEnum):
    """Timestamps that are questions."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_SINCE_VERSION: Final = {
    _Special.LATEST: 1,
    _Special.EARLIEST: 1,
    _Special.MAX_TIMESTAMP: 7,
    _Special.EARLIEST_LOCAL: 8,
    _Special.LATEST_TIERED: 9,
    _Special.EARLIEST_PENDING_UPLOAD: 11,
}
_UNBOUNDED: Final = (_Special.LATEST, _Special.EARLIEST, _Special.EARLIEST_LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    hosted: HostedPartition
    timestamp: int
    version: int
    is_follower: bool
    read_committed: bool

    @property
    def log(self) -> PartitionLog:
        return self.hosted.log

    @property
    def last_fetchable_offset(self) -> int:
        if self.is_follower:
            return self.log.log_end_offset
        return self.log.last_stable_offset if self.read_committed else self.log.high_watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ListOffsetsHandler:
    """Answers ListOffsets v1 to v11."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Looks up all partitions at once; one that takes too long is timed out alone."""
        body = call.body
        timeout_ms = millis(body.timeout) if hasattr(body, "timeout") else 0
        if timeout_ms <= 0:
            timeout_ms = self._services.config.remote_list_offsets_timeout_ms
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        async with asyncio.TaskGroup() as group:
            topics = [
                {
                    **topic_key(requested),
                    "partitions": [
                        group.create_task(self._partition(call, requested.name, each, deadline_s))
                        for each in requested.partitions
                    ],
                }
                for requested in body.topics
            ]
        for topic in topics:
            topic["partitions"] = [task.result() for task in topic["partitions"]]
        return {"topics": topics}

    async def _partition(
        self, call: Call, topic: str, requested: Any, deadline_s: float
    ) -> dict[str, Any]:
        found = _Found()
        error = ErrorCode.none
        hosted = self._services.partitions.leader(
            topic, requested.partition_index, getattr(requested, "current_leader_epoch", -1)
        )
        if isinstance(hosted, ErrorCode):
            error = hosted
        else:
            question = _Question(
                hosted=hosted,
                timestamp=requested.timestamp,
                version=call.version,
                is_follower=call.body.replica_id >= 0,
                read_committed=bool(getattr(call.body, "isolation_level", 0)),
            )
            try:
                async with asyncio.timeout_at(deadline_s):
                    answer = await self._answer(question)
            except (AquiferError, TimeoutError) as failure:
                error = _code(failure)
            except Exception:
                logger.exception("list_offsets_failed", partition=str(hosted.topic_id_partition))
                error = ErrorCode.unknown_server_error
            else:
                found, error = (
                    (_Found(), answer) if isinstance(answer, ErrorCode) else (answer, error)
                )
        return {
            "partition_index": requested.partition_index,
            "error_code": error,
            "timestamp": found.timestamp_ms,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }

    async def _answer(self, question: _Question) -> _Found | ErrorCode:
        if question.timestamp >= 0:
            return _bounded(question, await self._by_time(question))
        try:
            special = _Special(question.timestamp)
        except ValueError:
            return ErrorCode.unsupported_version
        if special is _Special.MAX_TIMESTAMP and question.is_follower:
            # The tiered storage proposal's NEXT_LOCAL_TIMESTAMP had this number (SR-27).
            return await _earliest_local(question)
        if question.version < _SINCE_VERSION[special]:
            return ErrorCode.unsupported_version
        found = await _ANSWERS[special](question)
        return found if special in _UNBOUNDED else _bounded(question, found)

    async def _by_time(self, question: _Question) -> _Found:
        """Remote first, then local; nothing found is no error (SR-26)."""
        log = question.log
        remote = self._services.remote
        record: TimestampAndOffset | None = None
        # After a restart the highest remote offset is unknown for a while; a local log that starts later tells as much.
        has_remote_part = (
            log.highest_offset_in_remote_storage >= 0
            or log.log_start_offset < log.local_log_start_offset
        )
        if log.lacks_leader_epochs:
            # Without the lineage nothing remote would be found, and a record behind it would be answered.
            raise RemoteStorageUnavailableError(
                f"the leader epochs of {log.topic_id_partition} were lost and are not found again yet",
                reason=ErrorReason.NOT_READY,
            )
        if remote is not None and log.tiering_enabled and has_remote_part:
            record = await remote.offset_for_timestamp(log, question.timestamp)
        if record is None:
            record = await log.offset_for_timestamp(question.timestamp)
        return _of_record(record)


def _code(failure: Exception) -> ErrorCode:
    if isinstance(failure, TimeoutError):
        return ErrorCode.request_timed_out
    return error_code_of(failure, unavailable=ErrorCode.kafka_storage_error)


def _of_record(record: TimestampAndOffset | None) -> _Found:
    if record is None:
        return _Found()
    epoch = record.leader_epoch if record.leader_epoch is not None else -1
    return _Found(offset=record.offset, timestamp_ms=record.timestamp_ms, leader_epoch=epoch)


def _bounded(question: _Question, found: _Found) -> _Found:
    """What the client could not fetch is not told."""
    return _Found() if found.offset >= question.last_fetchable_offset else found


def _epoch_at(log: PartitionLog, offset: int) -> int:
    epoch = log.leader_epochs.epoch_for_offset(offset)
    return epoch if epoch is not None else -1


async def _latest(question: _Question) -> _Found:
    return _Found(offset=question.last_fetchable_offset, leader_epoch=question.hosted.leader_epoch)


async def _earliest(question: _Question) -> _Found:
    offset = question.log.log_start_offset
    return _Found(offset=offset, leader_epoch=_epoch_at(question.log, offset))


async def _max_timestamp(question: _Question) -> _Found:
    return _of_record(await question.log.max_timestamp())


async def _earliest_local(question: _Question) -> _Found:
    offset = question.log.local_log_start_offset
    return _Found(offset=offset, leader_epoch=_epoch_at(question.log, offset))


async def _latest_tiered(question: _Question) -> _Found:
    offset = question.log.highest_offset_in_remote_storage
    if not question.log.tiering_enabled or offset < 0:
        return _Found()
    return _Found(offset=offset, leader_epoch=_epoch_at(question.log, offset))


async def _earliest_pending_upload(question: _Question) -> _Found:
    log = question.log
    if not log.tiering_enabled:
        return _Found()
    highest = log.highest_offset_in_remote_storage
    if highest >= 0:
        offset = max(highest + 1, log.log_start_offset)
    elif log.log_start_offset == log.local_log_start_offset:
        offset = log.log_start_offset
    else:
        return _Found()
    return _Found(offset=offset, leader_epoch=_epoch_at(log, offset))


_ANSWERS: Final[dict[_Special, Callable[[_Question], Awaitable[_Found]]]] = {
    _Special.LATEST: _latest,
    _Special.EARLIEST: _earliest,
    _Special.MAX_TIMESTAMP: _max_timestamp,
    _Special.EARLIEST_LOCAL: _earliest_local,
    _Special.LATEST_TIERED: _latest_tiered,
    _Special.EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}
