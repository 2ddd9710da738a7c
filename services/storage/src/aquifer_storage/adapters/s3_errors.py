"""What the errors of S3 and of the way to it mean."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import ParseError

from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    InternalError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError

RETRY_AFTER_MS: Final = 1_000

_BUSY: Final = frozenset(
    {
        "SlowDown",
        "ServiceUnavailable",
        "InternalError",
        "RequestTimeout",
        "OperationAborted",
        "ConditionalRequestConflict",
        "TooManyRequests",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "BandwidthLimitExceeded",
        "ServerBusy",
        "XMinioServerNotInitialized",
    }
)
DAMAGED: Final = frozenset(
    {
        "BadDigest",
        "IncompleteBody",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
"""What came is not what was sent."""
_CREDENTIALS: Final = "the credentials of this service or their rights do not suffice"
_ELSEWHERE: Final = "the bucket is in another region or at another endpoint"
_FULL: Final = "the store or its quota is full"
_REFUSALS: Final[Mapping[str, str]] = {
    "AccessDenied": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "AuthorizationHeaderMalformed": _CREDENTIALS,
    # The library's name for a 400 without a body: what S3 answers to HEAD with an expired token or for another region.
    "BadRequest": _CREDENTIALS,
    "RequestTimeTooSkewed": "the clock of this service, or of the store, is wrong",
    "InvalidObjectState": "the object was moved to an archive, which no rule may do here",
    "QuotaExceeded": _FULL,
    "XMinioAdminBucketQuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
}
_BUSY_STATUS: Final = frozenset({408, 429, 499})
_UNKNOWN_STATUS: Final = frozenset({501, 505})
_ELSEWHERE_STATUS: Final = frozenset({301, 302, 307, 308})
_FULL_STATUS: Final = 507


class RefusedByStoreError(RemoteStorageUnavailableError):
    """The store refuses this service, not one request: credentials or bucket. A quick retry does not help."""


class PreconditionFailedByStoreError(ConcurrentUpdateError):
    """The condition of a write does not hold."""


class UnsupportedByStoreError(InternalError):
    """The store does not know such requests."""


class UploadGoneError(ConcurrentUpdateError):
    """An upload in parts is not there any more: aborted, or completed before."""


class PastEndError(InternalError):
    """A range begins where the object has ended."""


_ONE_CODE: Final[Mapping[str, type[AquiferError]]] = {
    "NoSuchKey": RemoteResourceNotFoundError,
    "NoSuchObject": RemoteResourceNotFoundError,
    "NoSuchUpload": UploadGoneError,
    "InvalidRange": PastEndError,
    "PreconditionFailed": PreconditionFailedByStoreError,
    "NotImplemented": UnsupportedByStoreError,
    "MethodNotAllowed": UnsupportedByStoreError,
}


def translated(error: Exception, operation: str, key: str) -> AquiferError:
    """Return our error for one that a request raised."""
    what = f"{operation} of {key or 'the bucket'}"
    if isinstance(error, AquiferError):
        return error
    if isinstance(error, S3Error):
        return _from_s3(error, what)
    if isinstance(error, MinioException):
        return _from_status(_status(error), what, str(error))
    if isinstance(error, HTTPError | OSError):
        return _unavailable(f"{what}: the object store does not answer: {error}")
    if isinstance(error, ParseError):
        return _unavailable(f"{what}: the object store's answer cannot be read: {error}")
    return InternalError(f"{what}: {error!r}")


def _from_s3(error: S3Error, what: str) -> AquiferError:
    code = error.code or ""
    text = f"{what}: the object store answers {code}: {error.message}"
    if code in _ONE_CODE:
        return _ONE_CODE[code](text)
    if code == "NoSuchBucket":
        return _refused(f"bucket {error.bucket_name} does not exist; {text}")
    if code in _REFUSALS:
        return _refused(f"{_REFUSALS[code]}; {text}")
    if code in _BUSY or code in DAMAGED:
        return _unavailable(text)
    return _from_status(error.response.status, what, text)


def _from_status(status: int, what: str, text: str) -> AquiferError:
    told = f"{what}: HTTP status {status}: {text}"
    if status == _FULL_STATUS:
        return _refused(f"{_FULL}; {told}")
    if status in _ELSEWHERE_STATUS:
        return _refused(f"{_ELSEWHERE}; {told}")
    if status in _BUSY_STATUS or (status >= 500 and status not in _UNKNOWN_STATUS):
        return _unavailable(told)
    if status == 412:
        return PreconditionFailedByStoreError(text)
    if status in (401, 403):
        return _refused(f"{_CREDENTIALS}; {told}")
    return InternalError(told)


def _status(error: MinioException) -> int:
    if isinstance(error, ServerError):
        return error.status_code
    if isinstance(error, InvalidResponseError):
        return int(error._code)
    return 0


def _unavailable(text: str) -> RemoteStorageUnavailableError:
    return RemoteStorageUnavailableError(text, retry_after_ms=RETRY_AFTER_MS)


def _refused(text: str) -> RefusedByStoreError:
    return RefusedByStoreError(text, retry_after_ms=RETRY_AFTER_MS)
