"""Produce: record bytes go from the request to the log as they are."""

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import structlog
from aquifer_core.errors import (
    AquiferError,
    InvalidRequestError,
    PreconditionError,
    StaleLeaderEpochError,
)
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.record_batch import iter_batches, validate_crc
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices, topic_key
from aquifer_broker.log.log_values import AppendInfo
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.entities import millis
from aquifer_broker.protocol.traffic_metrics import produced

__all__ = ["ProduceHandler"]

logger = structlog.get_logger(__name__)

_ALL: Final = -1
_ACKS: Final = (0, 1, _ALL)


class _UnregisteredTransactionError(PreconditionError):
    """Nothing registers transactions here, so no producer id belongs to any (INVALID_PRODUCER_ID_MAPPING)."""

    kafka_error_code: ClassVar[int] = ErrorCode.invalid_producer_id_mapping


@dataclass(frozen=True, slots=True)
class _Appended:
    hosted: HostedPartition
    info: AppendInfo
    answer: dict[str, Any]

    @property
    def pending(self) -> bool:
        return self.hosted.log.high_watermark <= self.info.last_offset


class ProduceHandler:
    """Answers Produce v3 to v13."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer | None:
        """Appends every partition in order; acks=0 gets no answer, and a closed connection on an error."""
        self._services.hot.seen()
        body = call.body
        topics: list[dict[str, Any]] = []
        appended: list[_Appended] = []
        for requested in body.topic_data:
            partitions = [
                await self._append(body, requested, data, appended)
                for data in requested.partition_data
            ]
            topics.append({**topic_key(requested), "partition_responses": partitions})
        if body.acks == 0:
            _close_on_failure(topics)
            return None
        if body.acks == _ALL and appended:
            await _await_replicas(appended, millis(body.timeout))
        return {"responses": topics}

    async def _append(
        self, body: Any, requested: Any, data: Any, appended: list[_Appended]
    ) -> dict[str, Any]:
        hosted = self._leader_or_refusal(body, requested, data)
        if isinstance(hosted, ErrorCode):
            return _refused(data.index, hosted)
        try:
            _check_transactions(body.transactional_id, data.records)
            info = await hosted.log.append(data.records, leader_epoch=hosted.leader_epoch)
        except StaleLeaderEpochError as error:
            # The producer named no epoch, so it cannot be fenced by one: it has to find the leader again.
            return _refused(data.index, ErrorCode.not_leader_or_follower, str(error))
        except AquiferError as error:
            code = error_code_of(error, unavailable=ErrorCode.kafka_storage_error)
            return _refused(data.index, code, str(error))
        except Exception:
            logger.exception("append_failed", partition=str(hosted.topic_id_partition))
            return _refused(data.index, ErrorCode.unknown_server_error)
        answer = {
            "index": data.index,
            "error_code": ErrorCode.none,
            "base_offset": info.first_offset,
            "log_append_time": info.log_append_time_ms,
            "log_start_offset": info.log_start_offset,
            "record_errors": (),
        }
        appended.append(_Appended(hosted, info, answer))
        if info.size_bytes:
            produced(hosted.topic_id_partition.topic, info.size_bytes)
        return answer

    def _leader_or_refusal(
        self, body: Any, requested: Any, data: Any
    ) -> HostedPartition | ErrorCode:
        refusal = _refuse(body, data)
        if refusal is not ErrorCode.none:
            return refusal
        topic = self._services.topic_of(requested)
        if topic is None:
            by_id = hasattr(requested, "topic_id")
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        hosted = self._services.partitions.leader(topic.name, data.index)
        if isinstance(hosted, ErrorCode):
            return hosted
        if body.acks == _ALL and len(hosted.info.isr) < hosted.log.config.min_insync_replicas:
            return ErrorCode.not_enough_replicas
        return hosted


def _refuse(body: Any, data: Any) -> ErrorCode:
    """What is wrong with the request itself."""
    if body.acks not in _ACKS:
        return ErrorCode.invalid_required_acks
    return ErrorCode.invalid_record if data.records is None else ErrorCode.none


def _check_transactions(transactional_id: str | None, records: Buffer) -> None:
    """Refuses what would hold back the last stable offset for ever, because nobody could end it.

    Raises:
        _UnregisteredTransactionError: the request, or a batch, is of a transaction.
        CorruptRecordError: a batch may only seem to be.
    """
    of_transactions = [batch for batch in iter_batches(records) if batch.is_transactional]
    for batch in of_transactions:
        validate_crc(batch)
    if of_transactions or transactional_id is not None:
        raise _UnregisteredTransactionError("transactions are not served by this cluster")


async def _await_replicas(appended: list[_Appended], timeout_ms: int) -> None:
    """Waits until the high watermark has passed what was appended; what has not in time is timed out."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for done in appended:
                if done.pending:
                    await done.hosted.log.wait_for_data(done.info.last_offset)
    except TimeoutError:
        for done in appended:
            if done.pending:
                done.answer.update(error_code=ErrorCode.request_timed_out, base_offset=-1)


def _close_on_failure(topics: list[dict[str, Any]]) -> None:
    for topic in topics:
        for partition in topic["partition_responses"]:
            code = partition["error_code"]
            if code is not ErrorCode.none:
                raise InvalidRequestError(
                    f"acks=0 and {code.name}: nothing else tells the producer"
                )


def _refused(index: int, code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "index": index,
        "error_code": code,
        "base_offset": -1,
        "record_errors": (),
        "error_message": message,
    }
