"""The error tree of the suite.

Domain code raises these; `aquifer_rpc` carries them over the wire as `google.rpc.Status` and back without loss.
`reason` is for programs and stays stable, the text is for people and may change::

    AquiferError
    ├── RemoteResourceNotFoundError     NOT_FOUND
    ├── InvalidRequestError             INVALID_ARGUMENT
    │   └── InvalidConfigurationError
    ├── AlreadyExistsError              ALREADY_EXISTS
    ├── PositionOutOfRangeError         OUT_OF_RANGE
    ├── OffsetOutOfRangeError           OUT_OF_RANGE
    ├── PreconditionError               FAILED_PRECONDITION
    │   ├── InvalidStateTransitionError
    │   ├── StaleLeaderEpochError
    │   └── NotLeaderError
    ├── ConcurrentUpdateError           ABORTED
    ├── QuotaExceededError              RESOURCE_EXHAUSTED
    ├── UnavailableError                UNAVAILABLE
    │   └── RemoteStorageUnavailableError
    ├── DeadlineExceededError           DEADLINE_EXCEEDED
    ├── CorruptDataError                DATA_LOSS
    │   ├── CorruptSegmentError
    │   ├── CorruptRecordError
    │   └── CorruptIndexError
    ├── UnauthenticatedError            UNAUTHENTICATED
    ├── PermissionDeniedError           PERMISSION_DENIED
    └── InternalError                   INTERNAL
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar


class ErrorReason(StrEnum):
    """Machine-readable reasons; equal by name to `aquifer.errors.v1.ErrorReason`."""

    SEGMENT_NOT_FOUND = "SEGMENT_NOT_FOUND"
    INDEX_NOT_FOUND = "INDEX_NOT_FOUND"
    NO_SEGMENT_FOR_OFFSET = "NO_SEGMENT_FOR_OFFSET"
    PARTITION_NOT_FOUND = "PARTITION_NOT_FOUND"
    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    BROKER_NOT_FOUND = "BROKER_NOT_FOUND"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_SEGMENT = "INVALID_SEGMENT"
    INVALID_OFFSET_RANGE = "INVALID_OFFSET_RANGE"
    INVALID_CONFIGURATION = "INVALID_CONFIGURATION"
    INVALID_TOPIC = "INVALID_TOPIC"
    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    TOPIC_ALREADY_EXISTS = "TOPIC_ALREADY_EXISTS"
    POSITION_PAST_END = "POSITION_PAST_END"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    INVALID_SEGMENT_TRANSITION = "INVALID_SEGMENT_TRANSITION"
    INVALID_PARTITION_TRANSITION = "INVALID_PARTITION_TRANSITION"
    STALE_LEADER_EPOCH = "STALE_LEADER_EPOCH"
    STALE_BROKER_EPOCH = "STALE_BROKER_EPOCH"
    NOT_LEADER = "NOT_LEADER"
    OFFSET_CONSTRAINT = "OFFSET_CONSTRAINT"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    CONCURRENT_UPDATE = "CONCURRENT_UPDATE"
    COPY_QUOTA = "COPY_QUOTA"
    FETCH_QUOTA = "FETCH_QUOTA"
    READER_QUEUE_FULL = "READER_QUEUE_FULL"
    NOT_READY = "NOT_READY"
    OBJECT_STORE_UNAVAILABLE = "OBJECT_STORE_UNAVAILABLE"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    PEER_UNAVAILABLE = "PEER_UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CHECKSUM_MISMATCH = "CHECKSUM_MISMATCH"
    CORRUPT_RECORD = "CORRUPT_RECORD"
    CORRUPT_INDEX = "CORRUPT_INDEX"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INTERNAL = "INTERNAL"
    ENCRYPTION_KEY_UNAVAILABLE = "ENCRYPTION_KEY_UNAVAILABLE"


class AquiferError(Exception):
    """Base of every error that Aquifer raises on purpose.

    Attributes:
        message: for people.
        reason: for programs.
        metadata: string pairs for programs; keys are lowerCamel and documented with the reason.
        retry_after_ms: how long to wait before a retry can help; None when a retry cannot help.
    """

    default_reason: ClassVar[ErrorReason] = ErrorReason.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        reason: ErrorReason | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})
        self.retry_after_ms = retry_after_ms

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.message, self.reason, self.metadata, self.retry_after_ms) == (
            other.message,
            other.reason,
            other.metadata,
            other.retry_after_ms,
        )

    def __hash__(self) -> int:
        return hash((type(self), self.message, self.reason))


class RemoteResourceNotFoundError(AquiferError):
    """The segment, index, partition or topic does not exist. Never raised when the look-up itself failed."""

    default_reason = ErrorReason.SEGMENT_NOT_FOUND


class InvalidRequestError(AquiferError):
    """The request can never succeed as it is."""

    default_reason = ErrorReason.INVALID_REQUEST


class InvalidConfigurationError(InvalidRequestError):
    """A configuration key or value is refused; the text names key, value and remedy."""

    default_reason = ErrorReason.INVALID_CONFIGURATION


class AlreadyExistsError(AquiferError):
    """What should be created exists already with other content."""

    default_reason = ErrorReason.TOPIC_ALREADY_EXISTS


class PositionOutOfRangeError(AquiferError):
    """A byte position past the end of a segment file."""

    default_reason = ErrorReason.POSITION_PAST_END


class OffsetOutOfRangeError(AquiferError):
    """An offset that the tier asked does not hold."""

    default_reason = ErrorReason.OFFSET_OUT_OF_RANGE


class PreconditionError(AquiferError):
    """The system is not in the state that the request needs."""

    default_reason = ErrorReason.OFFSET_CONSTRAINT


class InvalidStateTransitionError(PreconditionError):
    """A state change that the segment or partition state machine forbids (K-1.3)."""

    default_reason = ErrorReason.INVALID_SEGMENT_TRANSITION


class StaleLeaderEpochError(PreconditionError):
    """A write by a leader that has been replaced; metadata keys `given` and `current`."""

    default_reason = ErrorReason.STALE_LEADER_EPOCH


class NotLeaderError(PreconditionError):
    """The broker asked does not lead the partition, or not in that epoch."""

    default_reason = ErrorReason.NOT_LEADER


class ConcurrentUpdateError(AquiferError):
    """Somebody else changed the same thing at the same time; read again, then retry."""

    default_reason = ErrorReason.CONCURRENT_UPDATE


class QuotaExceededError(AquiferError):
    """A queue is full or a quota is spent; `retry_after_ms` says when to come back."""

    default_reason = ErrorReason.FETCH_QUOTA


class UnavailableError(AquiferError):
    """A dependency does not answer now; the operation may or may not have happened."""

    default_reason = ErrorReason.NOT_READY


class RemoteStorageUnavailableError(UnavailableError):
    """The object store, the database or a service does not answer now."""

    default_reason = ErrorReason.OBJECT_STORE_UNAVAILABLE


class DeadlineExceededError(AquiferError):
    """The time given was over; the operation may or may not have happened."""

    default_reason = ErrorReason.DEADLINE_EXCEEDED


class CorruptDataError(AquiferError):
    """Bytes that do not match their checksum or format. Never retried, never served."""

    default_reason = ErrorReason.CHECKSUM_MISMATCH


class CorruptSegmentError(CorruptDataError):
    """A stored segment is damaged; metadata keys `segmentId`, `chunk`, `position` where known."""


class CorruptRecordError(CorruptDataError):
    """A record batch is malformed or fails its CRC."""

    default_reason = ErrorReason.CORRUPT_RECORD


class CorruptIndexError(CorruptDataError):
    """An index, checkpoint or snapshot is malformed."""

    default_reason = ErrorReason.CORRUPT_INDEX


class UnauthenticatedError(AquiferError):
    """The caller did not say who it is."""

    default_reason = ErrorReason.UNAUTHENTICATED


class PermissionDeniedError(AquiferError):
    """The caller may not do this."""

    default_reason = ErrorReason.PERMISSION_DENIED


class InternalError(AquiferError):
    """Anything that nobody foresaw; details stay in the log of the process that raised it."""

    default_reason = ErrorReason.INTERNAL
