"""Errors of the local log that the core tree has no name for; each knows its Kafka error code."""

from typing import ClassVar

from aquifer_core.errors import (
    ErrorReason,
    InvalidRequestError,
    PreconditionError,
    UnavailableError,
)


class RecordTooLargeError(InvalidRequestError):
    """A batch is larger than `max.message.bytes` (MESSAGE_TOO_LARGE)."""

    kafka_error_code: ClassVar[int] = 10


class RecordListTooLargeError(InvalidRequestError):
    """The batches of one append are together larger than a segment (RECORD_LIST_TOO_LARGE)."""

    kafka_error_code: ClassVar[int] = 18


class InvalidTimestampError(InvalidRequestError):
    """A timestamp is further from now than the topic allows (INVALID_TIMESTAMP)."""

    kafka_error_code: ClassVar[int] = 32


class InvalidRecordError(InvalidRequestError):
    """A batch has a valid checksum but content that a client may not write (INVALID_RECORD)."""

    kafka_error_code: ClassVar[int] = 87


class PolicyViolationError(InvalidRequestError):
    """The topic's configuration forbids the operation (POLICY_VIOLATION)."""

    kafka_error_code: ClassVar[int] = 44


class OutOfOrderSequenceError(PreconditionError):
    """The sequence does not follow the producer's last one (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    kafka_error_code: ClassVar[int] = 45


class InvalidProducerEpochError(PreconditionError):
    """The producer was replaced by one with a higher epoch (INVALID_PRODUCER_EPOCH)."""

    kafka_error_code: ClassVar[int] = 47


class InvalidTxnStateError(PreconditionError):
    """A non-transactional batch inside a transaction (INVALID_TXN_STATE)."""

    kafka_error_code: ClassVar[int] = 48


class TransactionCoordinatorFencedError(PreconditionError):
    """A transaction marker of a replaced coordinator (TRANSACTION_COORDINATOR_FENCED)."""

    kafka_error_code: ClassVar[int] = 52


class LogStorageError(UnavailableError):
    """The log dir is offline after an I/O error (KAFKA_STORAGE_ERROR)."""

    kafka_error_code: ClassVar[int] = 56
    default_reason = ErrorReason.NOT_READY


class NoFreeFileError(UnavailableError):
    """The process may open no more files now (KAFKA_STORAGE_ERROR); nothing was changed, and the disk is not to blame."""

    kafka_error_code: ClassVar[int] = 56
    default_reason = ErrorReason.NOT_READY


class OffsetsOutOfOrderError(InvalidRequestError):
    """A replicated batch does not follow the end of the log; the follower must truncate first."""

    kafka_error_code: ClassVar[int] = -1
