"""Our errors as Kafka error codes."""

from collections.abc import Mapping
from typing import Final

from aquifer_core.errors import (
    AquiferError,
    CorruptRecordError,
    DeadlineExceededError,
    ErrorReason,
    OffsetOutOfRangeError,
    QuotaExceededError,
    UnavailableError,
)
from kio.schema.errors import ErrorCode

__all__ = ["error_code_of", "error_code_of_reason"]

_BY_REASON: Final[Mapping[ErrorReason, ErrorCode]] = {
    ErrorReason.PARTITION_NOT_FOUND: ErrorCode.unknown_topic_or_partition,
    ErrorReason.TOPIC_NOT_FOUND: ErrorCode.unknown_topic_or_partition,
    ErrorReason.GROUP_NOT_FOUND: ErrorCode.group_id_not_found,
    ErrorReason.INVALID_REQUEST: ErrorCode.invalid_request,
    ErrorReason.INVALID_CONFIGURATION: ErrorCode.invalid_config,
    ErrorReason.INVALID_TOPIC: ErrorCode.invalid_topic_exception,
    ErrorReason.INVALID_PARTITIONS: ErrorCode.invalid_partitions,
    ErrorReason.INVALID_REPLICATION_FACTOR: ErrorCode.invalid_replication_factor,
    ErrorReason.TOPIC_ALREADY_EXISTS: ErrorCode.topic_already_exists,
    ErrorReason.OFFSET_OUT_OF_RANGE: ErrorCode.offset_out_of_range,
    # Of clients only a change of settings meets it: tiering enabled again while its remote data is being deleted.
    ErrorReason.INVALID_PARTITION_TRANSITION: ErrorCode.invalid_config,
    ErrorReason.STALE_LEADER_EPOCH: ErrorCode.fenced_leader_epoch,
    ErrorReason.STALE_BROKER_EPOCH: ErrorCode.stale_broker_epoch,
    ErrorReason.NOT_LEADER: ErrorCode.not_leader_or_follower,
    ErrorReason.CONCURRENT_UPDATE: ErrorCode.concurrent_transactions,
    ErrorReason.CORRUPT_RECORD: ErrorCode.corrupt_message,
    ErrorReason.PERMISSION_DENIED: ErrorCode.cluster_authorization_failed,
}

_BY_CLASS: Final[tuple[tuple[type[AquiferError], ErrorCode], ...]] = (
    (OffsetOutOfRangeError, ErrorCode.offset_out_of_range),
    (CorruptRecordError, ErrorCode.corrupt_message),
    (QuotaExceededError, ErrorCode.throttling_quota_exceeded),
    (DeadlineExceededError, ErrorCode.request_timed_out),
)


def error_code_of(
    error: BaseException, *, unavailable: ErrorCode = ErrorCode.request_timed_out
) -> ErrorCode:
    """The code for an exception; `unavailable` stands for a dependency that does not answer."""
    kafka_error_code = getattr(error, "kafka_error_code", None)
    if kafka_error_code is not None:
        return ErrorCode(kafka_error_code)
    if isinstance(error, UnavailableError | TimeoutError):
        return unavailable
    if isinstance(error, AquiferError):
        for kind, code in _BY_CLASS:
            if isinstance(error, kind):
                return code
        return error_code_of_reason(error.reason)
    return ErrorCode.unknown_server_error


def error_code_of_reason(reason: ErrorReason) -> ErrorCode:
    """The code for a reason that came with a result of its own."""
    return _BY_REASON.get(reason, ErrorCode.unknown_server_error)
