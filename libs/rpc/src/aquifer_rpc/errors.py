"""Domain errors on the wire: `AquiferError` <-> `google.rpc.Status`, in one table.

The code and the reason choose the class on the other side. Where they do not, because somebody raised a class with a reason of
another one, the metadata key `kind` names the class out of the closed list below, so that nothing is lost.
"""

import asyncio
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
from aquifer_core import errors as core
from aquifer_core.errors import AquiferError, ErrorReason
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import StatusCode

DOMAIN: Final = "aquifer"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
REQUEST_ID_METADATA: Final = "requestId"

_KIND = "kind"
# Trailers are limited to 8 KiB by default, and the text travels in them twice.
_MAX_MESSAGE_BYTES = 1000
_MAX_VALUE_BYTES = 200
_MAX_PAIRS = 8

_R = ErrorReason
CODES: Final[dict[type[AquiferError], StatusCode]] = {
    core.RemoteResourceNotFoundError: StatusCode.NOT_FOUND,
    core.InvalidRequestError: StatusCode.INVALID_ARGUMENT,
    core.InvalidConfigurationError: StatusCode.INVALID_ARGUMENT,
    core.AlreadyExistsError: StatusCode.ALREADY_EXISTS,
    core.PositionOutOfRangeError: StatusCode.OUT_OF_RANGE,
    core.OffsetOutOfRangeError: StatusCode.OUT_OF_RANGE,
    core.PreconditionError: StatusCode.FAILED_PRECONDITION,
    core.InvalidStateTransitionError: StatusCode.FAILED_PRECONDITION,
    core.StaleLeaderEpochError: StatusCode.FAILED_PRECONDITION,
    core.NotLeaderError: StatusCode.FAILED_PRECONDITION,
    core.ConcurrentUpdateError: StatusCode.ABORTED,
    core.QuotaExceededError: StatusCode.RESOURCE_EXHAUSTED,
    core.UnavailableError: StatusCode.UNAVAILABLE,
    core.RemoteStorageUnavailableError: StatusCode.UNAVAILABLE,
    core.DeadlineExceededError: StatusCode.DEADLINE_EXCEEDED,
    core.CorruptDataError: StatusCode.DATA_LOSS,
    core.CorruptSegmentError: StatusCode.DATA_LOSS,
    core.CorruptRecordError: StatusCode.DATA_LOSS,
    core.CorruptIndexError: StatusCode.DATA_LOSS,
    core.UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    core.PermissionDeniedError: StatusCode.PERMISSION_DENIED,
    core.InternalError: StatusCode.INTERNAL,
    AquiferError: StatusCode.INTERNAL,
}

_BY_REASON: Final[dict[tuple[StatusCode, ErrorReason], type[AquiferError]]] = {
    (StatusCode.INVALID_ARGUMENT, _R.INVALID_CONFIGURATION): core.InvalidConfigurationError,
    (StatusCode.OUT_OF_RANGE, _R.OFFSET_OUT_OF_RANGE): core.OffsetOutOfRangeError,
    (StatusCode.FAILED_PRECONDITION, _R.INVALID_SEGMENT_TRANSITION): (
        core.InvalidStateTransitionError
    ),
    (StatusCode.FAILED_PRECONDITION, _R.INVALID_PARTITION_TRANSITION): (
        core.InvalidStateTransitionError
    ),
    (StatusCode.FAILED_PRECONDITION, _R.STALE_LEADER_EPOCH): core.StaleLeaderEpochError,
    (StatusCode.FAILED_PRECONDITION, _R.NOT_LEADER): core.NotLeaderError,
    (StatusCode.DATA_LOSS, _R.CHECKSUM_MISMATCH): core.CorruptSegmentError,
    (StatusCode.DATA_LOSS, _R.CORRUPT_RECORD): core.CorruptRecordError,
    (StatusCode.DATA_LOSS, _R.CORRUPT_INDEX): core.CorruptIndexError,
}

_BY_CODE: Final[dict[StatusCode, type[AquiferError]]] = {
    StatusCode.NOT_FOUND: core.RemoteResourceNotFoundError,
    StatusCode.INVALID_ARGUMENT: core.InvalidRequestError,
    StatusCode.ALREADY_EXISTS: core.AlreadyExistsError,
    StatusCode.OUT_OF_RANGE: core.PositionOutOfRangeError,
    StatusCode.FAILED_PRECONDITION: core.PreconditionError,
    StatusCode.ABORTED: core.ConcurrentUpdateError,
    StatusCode.RESOURCE_EXHAUSTED: core.QuotaExceededError,
    # The roles promise this class for whatever does not answer, so it stands for its base as well.
    StatusCode.UNAVAILABLE: core.RemoteStorageUnavailableError,
    StatusCode.DEADLINE_EXCEEDED: core.DeadlineExceededError,
    StatusCode.DATA_LOSS: core.CorruptDataError,
    StatusCode.UNAUTHENTICATED: core.UnauthenticatedError,
    StatusCode.PERMISSION_DENIED: core.PermissionDeniedError,
    StatusCode.INTERNAL: core.InternalError,
}

# What they say of data only our own services can know: from a proxy, or from a stranger at the address, it is no answer.
_OURS_TO_SAY: Final = frozenset(
    {
        StatusCode.NOT_FOUND,
        StatusCode.ALREADY_EXISTS,
        StatusCode.OUT_OF_RANGE,
        StatusCode.DATA_LOSS,
    }
)

_TOO_LARGE: Final = "message larger than max"
_REQUESTS_TOO_LARGE: Final = ("CLIENT: Sent", "SERVER: Received")

_BY_KIND: Final[dict[str, type[AquiferError]]] = {cls.__name__: cls for cls in CODES}
_CODE_OF_NUMBER: Final[dict[int, StatusCode]] = {code.value[0]: code for code in StatusCode}


def code_of(error: BaseException) -> StatusCode:
    """The status code that an error travels with; INTERNAL for what is not an `AquiferError`."""
    return (
        CODES[_known_class(type(error))]
        if isinstance(error, AquiferError)
        else (StatusCode.INTERNAL)
    )


def to_status(error: BaseException, request_id: str = "") -> status_pb2.Status:
    """Encodes an error.

    An exception that is not an `AquiferError` becomes INTERNAL with nothing but the request id: its text may hold secrets and
    belongs in the log of the process that raised it.

    Long texts and metadata values are cut so that the status fits in the trailers.
    """
    if not isinstance(error, AquiferError):
        text = f"internal error, see the server's log for request {request_id}"
        error = core.InternalError(text, metadata={REQUEST_ID_METADATA: request_id})
    cls = _known_class(type(error))
    code = CODES[cls]
    metadata = {key: _cut(value, _MAX_VALUE_BYTES) for key, value in _first_pairs(error.metadata)}
    if _class_of(code, error.reason) is not cls:
        metadata[_KIND] = cls.__name__
    info = error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN, metadata=metadata)
    details = [_packed(info)]
    if error.retry_after_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status_pb2.Status(
        code=code.value[0], message=_cut(error.message, _MAX_MESSAGE_BYTES), details=details
    )


def from_status(status: status_pb2.Status) -> AquiferError:
    """Decodes what `to_status` encoded; also statuses of others, as far as they go."""
    code = _CODE_OF_NUMBER.get(status.code, StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_ms: int | None = None
    known = False
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            known = info.domain == DOMAIN
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_ms = retry.retry_delay.ToMilliseconds()
    if not known:
        return _bare(code, status.message, retry_after_ms)
    metadata = dict(info.metadata)
    reason = _reason(info.reason)
    cls = _BY_KIND.get(metadata.pop(_KIND, ""))
    if cls is None or CODES[cls] is not code:
        cls = _class_of(code, reason)
    return cls(status.message, reason=reason, metadata=metadata, retry_after_ms=retry_after_ms)


def from_rpc_error(error: grpc.aio.AioRpcError) -> AquiferError:
    """Decodes a failed call: from the status in the trailers, else from the bare code that gRPC itself gave.

    Details that cannot be read, since they are somebody else's or were cut on their way, count as none.
    """
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            with suppress(DecodeError):
                return from_status(status_pb2.Status.FromString(value))
    return _bare(error.code(), error.details() or "", None)


def is_unimplemented(error: AquiferError) -> bool:
    """Whether the peer does not know the method: it is older than this process."""
    cause = error.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and cause.code() is StatusCode.UNIMPLEMENTED


def is_made_up(code: StatusCode, message: str) -> bool:
    """Whether grpc.aio itself says so for a message that it could not send, and the peer did not."""
    return code is StatusCode.INTERNAL and message == "Internal error from Core"


def from_cancellation(error: BaseException) -> AquiferError | asyncio.CancelledError:
    """Tells our own cancellation (returned as it is) from a call that was cut under us, by a closed channel for one."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0:
        return error
    return core.RemoteStorageUnavailableError(
        "the call was cancelled by its channel", reason=_R.PEER_UNAVAILABLE
    )


def _bare(code: StatusCode, message: str, retry_after_ms: int | None) -> AquiferError:
    """Statuses without our details: made by gRPC, a proxy, or a foreign server."""
    text = message or code.name
    if code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED) or _is_unknown(code, message):
        return core.RemoteStorageUnavailableError(
            text, reason=_R.PEER_UNAVAILABLE, retry_after_ms=retry_after_ms
        )
    if code in _OURS_TO_SAY:
        return core.RemoteStorageUnavailableError(
            f"{code.name}, which is not the answer of a service of ours: {text}",
            reason=_R.PEER_UNAVAILABLE,
            retry_after_ms=retry_after_ms,
        )
    if code is StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        return _too_large(text)
    cls = _BY_CODE.get(code, core.InternalError)
    if code not in _BY_CODE:
        text = f"{code.name}: {text}"
    return cls(text, retry_after_ms=retry_after_ms)


def _too_large(text: str) -> AquiferError:
    """gRPC's name for it is that of a spent quota, which frees itself in time."""
    if text.startswith(_REQUESTS_TOO_LARGE):
        return core.InvalidRequestError(f"the request is too large, ask for less at once: {text}")
    return core.InternalError(f"the answer is too large: {text}")


def _is_unknown(code: StatusCode, message: str) -> bool:
    """Whether an INTERNAL means that the peer's answer is not known; one that dies while it answers shows as RST_STREAM."""
    return is_made_up(code, message) or (code is StatusCode.INTERNAL and "RST_STREAM" in message)


def _class_of(code: StatusCode, reason: ErrorReason | None) -> type[AquiferError]:
    if reason is not None and (code, reason) in _BY_REASON:
        return _BY_REASON[(code, reason)]
    return _BY_CODE.get(code, core.InternalError)


def _known_class(cls: type[BaseException]) -> type[AquiferError]:
    return next(base for base in cls.__mro__ if base in CODES)


def _reason(text: str) -> ErrorReason | None:
    """None for a reason that a newer peer knows and we do not: the class's default stands in."""
    return ErrorReason(text) if text in ErrorReason.__members__ else None


def _first_pairs(metadata: dict[str, str]) -> list[tuple[str, str]]:
    return list(metadata.items())[:_MAX_PAIRS]


def _cut(text: str, limit_bytes: int) -> str:
    """Cuts to so many bytes; what is no Unicode text (names of files, for one) is replaced."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > limit_bytes:
        return encoded[: limit_bytes - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode("utf-8")


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
