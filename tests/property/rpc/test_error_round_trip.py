import grpc
import grpc.aio
import pytest
from aquifer.errors.v1 import error_reason_pb2
from aquifer_core import errors as core
from aquifer_core.errors import AquiferError, ErrorReason
from aquifer_rpc.errors import (
    CODES,
    STATUS_DETAILS_KEY,
    code_of,
    from_rpc_error,
    from_status,
    to_status,
)
from hypothesis import given
from hypothesis import strategies as st

ALL_CLASSES = [
    value
    for value in vars(core).values()
    if isinstance(value, type) and issubclass(value, AquiferError)
]

_OF_DATA = {
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.DATA_LOSS,
}

keys = st.from_regex(r"[a-z][a-zA-Z]{0,20}", fullmatch=True).filter(lambda key: key != "kind")
errors = st.builds(
    lambda cls, message, **kwargs: cls(message, **kwargs),
    st.sampled_from(ALL_CLASSES),
    st.text(max_size=200),
    reason=st.sampled_from(ErrorReason),
    metadata=st.dictionaries(keys, st.text(max_size=50), max_size=5),
    retry_after_ms=st.none() | st.integers(min_value=0, max_value=3_600_000),
)


def test_every_class_of_the_tree_has_a_code() -> None:
    assert set(ALL_CLASSES) == set(CODES)


@given(errors)
def test_every_error_survives_the_wire_unchanged(error: AquiferError) -> None:
    assert from_status(to_status(error)) == error


@given(errors)
def test_every_error_survives_in_the_trailers_of_a_call(error: AquiferError) -> None:
    status = to_status(error)
    trailers = grpc.aio.Metadata((STATUS_DETAILS_KEY, status.SerializeToString()))
    failed = grpc.aio.AioRpcError(
        code_of(error), grpc.aio.Metadata(), trailers, details=status.message
    )

    assert from_rpc_error(failed) == error


@given(errors)
def test_the_status_always_fits_in_trailers(error: AquiferError) -> None:
    long = type(error)(
        error.message * 1000,
        reason=error.reason,
        metadata={f"key{number}": "v" * 10_000 for number in range(100)},
    )

    assert to_status(long).ByteSize() < 4000


@given(st.text(min_size=1, max_size=100), st.sampled_from([ValueError, KeyError, OSError]))
def test_text_of_foreign_exceptions_never_crosses_the_wire(
    secret: str, cls: type[Exception]
) -> None:
    marked = f"<<{secret}>>"

    status = to_status(cls(marked), "request-7")

    assert marked.encode() not in status.SerializeToString()
    decoded = from_status(status)
    assert type(decoded) is core.InternalError
    assert decoded.metadata == {"requestId": "request-7"}


@given(st.sampled_from(list(grpc.StatusCode)), st.text(max_size=50))
def test_bare_statuses_of_others_mean_the_same_but_settle_nothing_about_data(
    code: grpc.StatusCode, details: str
) -> None:
    """Whoever took "no such segment" from a proxy for our word would take a segment for deleted."""
    failed = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)

    decoded = from_rpc_error(failed)

    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        assert isinstance(decoded, core.RemoteStorageUnavailableError)
        assert decoded.reason is ErrorReason.PEER_UNAVAILABLE
    elif code in _OF_DATA:
        assert type(decoded) is core.RemoteStorageUnavailableError
        assert code.name in decoded.message
    elif code in CODES.values():
        assert code_of(decoded) is code
    else:
        assert isinstance(decoded, core.InternalError)
        assert code.name in decoded.message


def test_text_that_is_no_unicode_does_not_stop_an_error() -> None:
    decoded = from_status(to_status(core.UnavailableError("file \udcff is gone")))

    assert decoded.message == "file ? is gone"


def test_a_reason_of_a_newer_peer_falls_back_to_the_default_of_the_class() -> None:
    status = to_status(core.RemoteResourceNotFoundError("gone"))
    status.details[0].value = status.details[0].value.replace(
        b"SEGMENT_NOT_FOUND", b"SEGMENT_IN_LIMBO!"
    )

    decoded = from_status(status)

    assert isinstance(decoded, core.RemoteResourceNotFoundError)
    assert decoded.reason is ErrorReason.SEGMENT_NOT_FOUND


def test_an_error_class_that_a_service_derives_travels_as_its_base() -> None:
    class ObjectStoreThrottled(core.RemoteStorageUnavailableError):
        pass

    decoded = from_status(to_status(ObjectStoreThrottled("slow down", retry_after_ms=5)))

    assert type(decoded) is core.RemoteStorageUnavailableError
    assert decoded.retry_after_ms == 5


@pytest.mark.parametrize("reason", list(ErrorReason))
def test_reasons_are_equal_by_name_to_the_contract(reason: ErrorReason) -> None:
    assert error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}") > 0
