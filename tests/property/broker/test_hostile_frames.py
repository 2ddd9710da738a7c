"""Bytes from anybody are a request or refused; they never end the process, and never raise anything else."""

import struct

from aquifer_broker.protocol.codec import MalformedRequestError, decode
from aquifer_broker.protocol.versions import SUPPORTED, ApiKey
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

REQUESTS = [
    (api_key, version)
    for api_key, versions in SUPPORTED.items()
    for version in range(versions.lowest, versions.highest + 1)
]
LIKELY_BYTES = st.sampled_from([0, 1, 2, 3, 127, 128, 254, 255]) | st.integers(0, 255)
BODIES = st.lists(LIKELY_BYTES, max_size=120).map(bytes)


def frame(api_key: ApiKey, version: int, body: bytes) -> memoryview:
    header = struct.pack(">hhih", api_key, version, 1, 1) + b"c"
    flexible = load_request_schema(api_key, version).__flexible__
    return memoryview(header + (b"\0" if flexible else b"") + body)


@given(st.sampled_from(REQUESTS), BODIES)
def test_any_body_is_read_or_refused(request: tuple[ApiKey, int], body: bytes) -> None:
    try:
        decoded = decode(frame(*request, body))
    except MalformedRequestError:
        return
    assert (decoded.api_key, decoded.api_version) == request


@given(BODIES)
def test_any_bytes_at_all_are_read_or_refused(data: bytes) -> None:
    try:
        decoded = decode(memoryview(data))
    except MalformedRequestError:
        return
    assert decoded.size_bytes == len(data)
