"""Requests that would end the process, and requests of clients that know more than this broker."""

import struct

import pytest
from aquifer_broker.protocol.codec import MalformedRequestError, decode
from aquifer_broker.protocol.versions import ApiKey

HUGE = struct.pack(">i", 2**31 - 1)
COMPACT_HUGE = b"\xff\xff\xff\xff\x0f"


def request(api_key: ApiKey, version: int, body: bytes, tags: bytes = b"") -> memoryview:
    header = struct.pack(">hhih", api_key, version, 7, 6) + b"client"
    return memoryview(header + tags + body)


@pytest.mark.parametrize(
    "frame",
    [
        request(ApiKey.METADATA, 1, HUGE),
        request(ApiKey.METADATA, 12, COMPACT_HUGE, b"\0"),
        request(ApiKey.LIST_GROUPS, 4, COMPACT_HUGE, b"\0"),
        request(ApiKey.OFFSET_FETCH, 1, b"\0\1g" + struct.pack(">i", 1) + b"\0\1t" + HUGE),
        request(ApiKey.DELETE_TOPICS, 1, struct.pack(">i", 100_000) + bytes(50)),
    ],
    ids=["legacy", "compact", "strings", "nested", "more than there is"],
)
def test_an_array_longer_than_its_request_is_refused(frame: memoryview) -> None:
    with pytest.raises(MalformedRequestError, match="bytes are left"):
        decode(frame)


def test_a_time_beyond_all_times_is_refused() -> None:
    body = b"\0\1g" + struct.pack(">i", -1) + b"\0\0" + struct.pack(">q", 2**63 - 1) + bytes(4)
    with pytest.raises(MalformedRequestError):
        decode(request(ApiKey.OFFSET_COMMIT, 2, body))


def test_tagged_fields_that_are_not_known_are_ignored() -> None:
    """A version may gain tagged fields at any time; who does not know them passes over them (KIP-482)."""
    unknown = b"\2\x21\3abc\xb0\x40\1x"
    fetch = struct.pack(">iiiibii", -1, 1, 1, 100, 0, 0, -1)
    partition = struct.pack(">iiqiqi", 5, -1, 9, -1, -1, 100) + unknown
    body = fetch + b"\2\2t\2" + partition + unknown + b"\1\1" + b"\2\0\4\4abc\x21\1x"
    decoded = decode(request(ApiKey.FETCH, 12, body, tags=unknown))
    assert decoded.client_id == "client"
    assert decoded.body.cluster_id == "abc"
    (asked,) = decoded.body.topics[0].partitions
    assert (asked.partition, asked.fetch_offset, asked.partition_max_bytes) == (5, 9, 100)
