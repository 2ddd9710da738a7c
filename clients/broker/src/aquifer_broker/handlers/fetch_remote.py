"""Tiered reads of a fetch: all partitions at once, with a wait of their own (K-3.7, SR-19)."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from aquifer_core.errors import (
    ErrorReason,
    OffsetOutOfRangeError,
    QuotaExceededError,
    RemoteResourceNotFoundError,
)
from kio.schema.errors import ErrorCode

from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.fetch_read import PartitionRead
from aquifer_broker.handlers.services import BrokerServices

__all__ = ["read_remote"]

logger = structlog.get_logger(__name__)

_DEFAULT_THROTTLE_MS: Final = 100


async def read_remote(services: BrokerServices, reads: Sequence[PartitionRead]) -> int:
    """Fills in what is remote; returns the time in ms that the client is to be throttled.

    A read that is not done in `remote.fetch.max.wait.ms` leaves its partition empty without an error, or, when no read has been answered for
    long, with KAFKA_STORAGE_ERROR: a slow store is waited for, of one that hangs the client is told.
    """
    remote = [read for read in reads if read.remote is not None]
    if not remote:
        return 0
    tasks = {
        asyncio.create_task(
            _read_one(services, read), name=f"remote read {read.target.topic}"
        ): read
        for read in remote
    }
    try:
        _, pending = await asyncio.wait(
            tasks, timeout=services.config.remote_fetch_max_wait_ms / 1000
        )
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in pending:
        _tell_if_stalled(services, tasks[task])
    return _throttle_ms(remote, [task.result() for task in tasks.keys() - pending])


def _throttle_ms(
    reads: Sequence[PartitionRead], refusals: Sequence[QuotaExceededError | None]
) -> int:
    """A client that got records is not slowed down for partitions that found no free reader: it asks for those next."""
    got_records = any(read.size_bytes for read in reads)
    return max(
        (
            refusal.retry_after_ms or _DEFAULT_THROTTLE_MS
            for refusal in refusals
            if refusal is not None
            and not (got_records and refusal.reason is ErrorReason.READER_QUEUE_FULL)
        ),
        default=0,
    )


def _tell_if_stalled(services: BrokerServices, read: PartitionRead) -> None:
    assert services.remote is not None
    assert read.remote is not None
    if services.remote.is_stalled(read.remote):
        read.error = ErrorCode.kafka_storage_error


async def _read_one(services: BrokerServices, read: PartitionRead) -> QuotaExceededError | None:
    assert services.remote is not None
    assert read.remote is not None
    try:
        result = await services.remote.read(read.remote)
    except QuotaExceededError as error:
        return error
    except (OffsetOutOfRangeError, RemoteResourceNotFoundError) as error:
        read.error = _gone(read, error)
    except Exception as error:
        logger.warning("remote_read_failed", partition=str(read.target.topic), error=str(error))
        read.error = ErrorCode.kafka_storage_error
    else:
        read.records = result.records
        read.aborted = result.aborted_transactions
    return None


def _gone(read: PartitionRead, error: Exception) -> ErrorCode:
    """Deleted meanwhile: outside the log if the log start has passed it, else worth another try."""
    assert read.remote is not None
    if read.remote.fetch_offset < read.remote.log.log_start_offset:
        return ErrorCode.offset_out_of_range
    logger.warning("remote_segment_missing", partition=str(read.target.topic), error=str(error))
    return error_code_of(TimeoutError(), unavailable=ErrorCode.kafka_storage_error)
