"""What the errors of an S3 store mean to callers."""

import pytest
from aquifer_core.errors import (
    AquiferError,
    ConcurrentUpdateError,
    InternalError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_rpc.errors import from_status, to_status
from aquifer_storage.adapters.s3_errors import RefusedByStoreError, translated
from minio.error import InvalidResponseError, S3Error, ServerError
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError, ReadTimeoutError


def s3_error(code: str, status: int) -> S3Error:
    """An error as minio raises it."""
    return S3Error(
        response=HTTPResponse(status=status),
        code=code,
        message="text",
        resource="/b/k",
        request_id="r",
        host_id="h",
        bucket_name="b",
        object_name="k",
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (s3_error("NoSuchKey", 404), RemoteResourceNotFoundError),
        (s3_error("NoSuchBucket", 404), RefusedByStoreError),
        (s3_error("AccessDenied", 403), RefusedByStoreError),
        (s3_error("SignatureDoesNotMatch", 403), RefusedByStoreError),
        (s3_error("SlowDown", 503), RemoteStorageUnavailableError),
        (s3_error("SomethingNew", 503), RemoteStorageUnavailableError),
        (s3_error("TooManyRequests", 429), RemoteStorageUnavailableError),
        (s3_error("ThrottlingException", 400), RemoteStorageUnavailableError),
        (s3_error("ClientDisconnected", 499), RemoteStorageUnavailableError),
        (InvalidResponseError(524, "text/html", "timeout"), RemoteStorageUnavailableError),
        (s3_error("PreconditionFailed", 412), ConcurrentUpdateError),
        (s3_error("NoSuchUpload", 404), ConcurrentUpdateError),
        (s3_error("EntityTooLarge", 400), InternalError),
        (s3_error("NotImplemented", 501), InternalError),
        (ServerError("x", 502), RemoteStorageUnavailableError),
        (InvalidResponseError(504, "text/html", "gateway"), RemoteStorageUnavailableError),
        (InvalidResponseError(403, "text/html", "no"), RefusedByStoreError),
        (ProtocolError("cut"), RemoteStorageUnavailableError),
        (ReadTimeoutError(None, "/", "slow"), RemoteStorageUnavailableError),  # type: ignore[arg-type]
        (ConnectionResetError("cut"), RemoteStorageUnavailableError),
        (ValueError("?"), InternalError),
    ],
    ids=repr,
)
def test_every_error_has_its_meaning(error: Exception, kind: type[AquiferError]) -> None:
    found = translated(error, "get_object", "a/key")
    assert isinstance(found, kind)
    assert "get_object" in found.message


def test_a_missing_bucket_is_never_a_missing_segment() -> None:
    """Could not look is not "not there"."""
    found = translated(s3_error("NoSuchBucket", 404), "get_object", "k")
    assert not isinstance(found, RemoteResourceNotFoundError)


def test_a_wrong_clock_is_not_told_as_wrong_credentials() -> None:
    """T56: each misconfiguration has its own message."""
    found = translated(s3_error("RequestTimeTooSkewed", 403), "put_object", "k")
    assert isinstance(found, RefusedByStoreError)
    assert "clock" in found.message
    assert "credentials" not in found.message


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (s3_error("XMinioStorageFull", 507), "full"),
        (s3_error("QuotaExceeded", 403), "full"),
        (s3_error("XMinioAdminBucketQuotaExceeded", 400), "full"),
        (InvalidResponseError(507, "text/html", "no room"), "full"),
        (s3_error("PermanentRedirect", 301), "region"),
        (s3_error("TemporaryRedirect", 307), "region"),
        (InvalidResponseError(308, "text/html", "elsewhere"), "region"),
        (s3_error("InvalidObjectState", 403), "archive"),
        (s3_error("BadRequest", 400), "credentials"),
    ],
    ids=repr,
)
def test_what_an_operator_must_change_is_named(error: Exception, told: str) -> None:
    """T56: nobody looks for wrong credentials because a bucket is full, or for a fault of ours because it is elsewhere."""
    found = translated(error, "put_object", "k")
    assert isinstance(found, RefusedByStoreError)
    assert told in found.message
    assert ("credentials" in found.message) == (told == "credentials")
    assert told in from_status(to_status(found)).message


def test_what_may_be_tried_again_says_when() -> None:
    for error in (s3_error("SlowDown", 503), s3_error("AccessDenied", 403)):
        assert translated(error, "put_object", "k").retry_after_ms


def test_refused_credentials_reach_clients_as_unavailable_with_their_text() -> None:
    """T56: each misconfiguration has its own message."""
    found = translated(s3_error("InvalidAccessKeyId", 403), "get_object", "k")
    received = from_status(to_status(found))
    assert type(received) is RemoteStorageUnavailableError
    assert "credentials" in received.message
    assert "InvalidAccessKeyId" in received.message
