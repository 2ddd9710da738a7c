"""One description of an answer, entities of every version."""

import datetime

import pytest
from aquifer_broker.protocol.codec import (
    BufferChain,
    MalformedRequestError,
    UnsupportedVersionError,
    decode,
    encode,
)
from aquifer_broker.protocol.entities import build
from aquifer_broker.protocol.versions import SUPPORTED, ApiKey
from aquifer_core.ids import KafkaUuid
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.serial import entity_reader


def fetch_answer(records: object) -> dict[str, object]:
    return {
        "error_code": ErrorCode.none,
        "responses": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition_index": 3,
                        "error_code": ErrorCode.none,
                        "high_watermark": 7,
                        "aborted_transactions": None,
                        "records": records,
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize("records", [b"r" * 10, memoryview(b"r" * 9000)])
def test_records_are_handed_on_by_reference_and_read_back_whole(
    records: bytes | memoryview,
) -> None:
    buffers = encode(ApiKey.FETCH, 11, 5, fetch_answer(records))
    assert any(buffer is records for buffer in buffers) == (len(records) > 4096)
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    response, _ = entity_reader(FetchResponse)(frame, 8)
    assert response.responses[0].partitions[0].records == bytes(records)


def test_records_in_pieces_are_one_field() -> None:
    pieces = [b"a" * 5000, memoryview(b"b" * 10), b""]
    frame = b"".join(encode(ApiKey.FETCH, 11, 5, fetch_answer(BufferChain(pieces))))
    response, _ = entity_reader(FetchResponse)(frame, 8)
    assert response.responses[0].partitions[0].records == b"a" * 5000 + b"b" * 10


def test_a_name_that_no_version_has_is_a_mistake() -> None:
    schema = load_response_schema(ApiKey.HEARTBEAT, 1)
    with pytest.raises(KeyError, match="eror_code"):
        build(schema, {"eror_code": ErrorCode.none})


def test_a_name_of_another_version_is_left_out() -> None:
    schema = load_response_schema(ApiKey.LEAVE_GROUP, 0)
    response = build(schema, {"error_code": ErrorCode.none, "members": ()})
    assert response == schema(error_code=ErrorCode.none)  # type: ignore[call-arg]


def test_times_and_ids_are_converted() -> None:
    schema = load_response_schema(ApiKey.METADATA, 12)
    topic_id = KafkaUuid.random()
    topic = {"error_code": ErrorCode.none, "name": "t", "topic_id": topic_id, "partitions": ()}
    response = build(schema, {"throttle_time": 250, "brokers": (), "topics": [topic]})
    assert response.throttle_time == datetime.timedelta(milliseconds=250)  # type: ignore[attr-defined]
    assert response.topics[0].topic_id.bytes == topic_id.raw  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "frame", [b"", b"\x00", b"\x00\x03", b"\x00\x03\x00\x0c\x00\x00", b"\x7f\xff" + bytes(20)]
)
def test_bytes_that_are_no_request_are_refused(frame: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        decode(memoryview(frame))


def test_an_unknown_version_names_the_correlation_id_to_answer() -> None:
    header = b"\x00\x12\x00\x63" + (77).to_bytes(4, "big") + b"\xff\xff"
    with pytest.raises(UnsupportedVersionError) as caught:
        decode(memoryview(header))
    assert (caught.value.api_key, caught.value.correlation_id) == (ApiKey.API_VERSIONS, 77)


def test_every_supported_version_has_a_schema() -> None:
    for api_key, versions in SUPPORTED.items():
        for version in range(versions.lowest, versions.highest + 1):
            schema = load_response_schema(api_key, version)
            assert (schema.__api_key__, schema.__version__) == (api_key, version)
