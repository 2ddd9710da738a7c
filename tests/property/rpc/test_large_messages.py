"""Large messages on the wire are what protobuf makes, and are read as protobuf reads them."""

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as manager_pb
from aquifer.storage.v1 import remote_storage_service_pb2 as pb
from aquifer_core.formats.checksum import crc32c
from aquifer_rpc.large_messages import (
    MAX_DATA_BYTES,
    WireChunk,
    decode_chunk_or,
    decode_piece,
    encode_chunk_or,
    encoded_data,
    encoded_pieces,
    large_bytes_or,
)
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.sampled_from([1, 127, 128, 16_384, MAX_DATA_BYTES, MAX_DATA_BYTES + 1])
COPY = pb.CopyLogSegmentDataRequest
ENCODE = encode_chunk_or(COPY.SerializeToString, COPY.CHUNK_FIELD_NUMBER)
DECODE = decode_chunk_or(COPY.FromString, COPY.CHUNK_FIELD_NUMBER)
DATA_FIELD = manager_pb.FetchResponse.DATA_FIELD_NUMBER


@given(position=st.integers(0, 1 << 62), size_bytes=SIZES)
def test_encoded_pieces_are_what_protobuf_would_have_made(position: int, size_bytes: int) -> None:
    data = bytes(range(256)) * (size_bytes // 256 + 1)
    view = memoryview(data)[:size_bytes]
    at = position
    for encoded in encoded_pieces(pb.FetchRecordsResponse, position, view):
        piece = pb.FetchRecordsResponse.FromString(bytes(encoded))  # type: ignore[call-overload]
        assert piece.position == at
        assert piece.data == data[at - position : at - position + MAX_DATA_BYTES][: len(piece.data)]
        assert piece.crc32c == crc32c(piece.data)
        at += len(piece.data)
    assert at == position + size_bytes


@given(
    position=st.integers(-(1 << 63), (1 << 63) - 1),
    data=st.binary(max_size=300),
    checksum=st.integers(0, (1 << 32) - 1),
)
def test_pieces_are_read_as_protobuf_wrote_them(position: int, data: bytes, checksum: int) -> None:
    message = pb.FetchRecordsResponse(position=position, data=data, crc32c=checksum)

    piece = decode_piece(message.SerializeToString())

    assert (piece.position, bytes(piece.data), piece.crc32c) == (position, data, checksum)


def test_fields_of_a_later_version_are_skipped() -> None:
    later = b"".join(
        (b"\x20\x96\x01", b"\x29" + bytes(8), b"\x32\x02hi", b"\x3d" + bytes(4))
    )  # varint, fixed64, bytes and fixed32 as fields 4 to 7
    message = pb.FetchRecordsResponse(position=7, data=b"abc", crc32c=9)

    piece = decode_piece(later + message.SerializeToString() + later)

    assert (piece.position, bytes(piece.data), piece.crc32c) == (7, b"abc", 9)


@given(wire=st.binary(max_size=60))
def test_what_is_no_message_is_refused(wire: bytes) -> None:
    try:
        piece = decode_piece(wire)
    except DecodeError:
        return
    assert len(piece.data) <= len(wire)


@pytest.mark.parametrize("cut", [1, 6, 10])
def test_a_piece_that_was_cut_off_is_refused(cut: int) -> None:
    wire = pb.FetchRecordsResponse(position=7, data=b"abc" * 10, crc32c=9).SerializeToString()

    with pytest.raises(DecodeError):
        decode_piece(wire[:-cut])


@given(size_bytes=SIZES)
def test_bytes_alone_travel_as_protobuf_would_have_sent_them(size_bytes: int) -> None:
    data = bytes(range(256)) * (size_bytes // 256 + 1)
    decode = large_bytes_or(manager_pb.FetchResponse.FromString, DATA_FIELD)
    joined = b""
    for encoded in encoded_data(
        manager_pb.FetchResponse, DATA_FIELD, memoryview(data)[:size_bytes]
    ):
        wire = bytes(encoded)  # type: ignore[call-overload]
        data_sent = data[len(joined) : min(len(joined) + MAX_DATA_BYTES, size_bytes)]
        assert wire == manager_pb.FetchResponse(data=data_sent).SerializeToString()
        read = decode(wire)
        assert isinstance(read, memoryview)
        joined += read

    assert joined == data[:size_bytes]


def test_messages_without_large_bytes_are_decoded_as_ever() -> None:
    decode = large_bytes_or(manager_pb.FetchResponse.FromString, DATA_FIELD)
    plan = manager_pb.FetchResponse(plan=manager_pb.FetchPlan(fetch_offset=5))

    assert decode(plan.SerializeToString()) == plan
    assert decode(b"") == manager_pb.FetchResponse()


@given(
    part=st.sampled_from(pb.SegmentPart.values()),
    position=st.integers(0, 1 << 62),
    data=st.binary(max_size=300),
    checksum=st.integers(0, (1 << 32) - 1),
)
def test_chunks_of_a_copy_travel_as_protobuf_would_have_sent_them(
    part: pb.SegmentPart.ValueType, position: int, data: bytes, checksum: int
) -> None:
    message = COPY(chunk=pb.CopyChunk(part=part, position=position, data=data, crc32c=checksum))

    assert COPY.FromString(ENCODE(WireChunk(part, position, memoryview(data), checksum))) == message
    read = DECODE(message.SerializeToString())
    assert isinstance(read, WireChunk)
    assert (read.part, read.position, bytes(read.data), read.crc32c) == (
        (part, position, data, checksum)
    )


@pytest.mark.parametrize("size_bytes", [127, 128, 16_384, MAX_DATA_BYTES])
def test_large_chunks_of_a_copy_are_encoded_as_protobuf_encodes_them(size_bytes: int) -> None:
    data = bytes(size_bytes)
    chunk = pb.CopyChunk(part=pb.SEGMENT_PART_SEGMENT, position=1 << 40, data=data, crc32c=9)

    encoded = ENCODE(WireChunk(pb.SEGMENT_PART_SEGMENT, 1 << 40, data, 9))

    assert encoded == COPY(chunk=chunk).SerializeToString()


@pytest.mark.parametrize(
    "message",
    [
        COPY(),
        COPY(finish=pb.CopyFinish()),
        COPY(spec=pb.CopySpec(parts=[pb.PartSpec(size_bytes=1)])),
    ],
)
def test_other_messages_of_a_copy_are_left_to_protobuf(
    message: pb.CopyLogSegmentDataRequest,
) -> None:
    assert DECODE(message.SerializeToString()) == message
    assert ENCODE(message) == message.SerializeToString()


def test_a_chunk_with_more_around_it_is_left_to_protobuf() -> None:
    chunk = COPY(chunk=pb.CopyChunk(part=pb.SEGMENT_PART_SEGMENT, data=b"abc"))
    later = chunk.SerializeToString() + b"\x7a\x02hi"

    assert not isinstance(DECODE(later), WireChunk)
    assert not isinstance(DECODE(later + chunk.SerializeToString()), WireChunk)


@given(wire=st.binary(max_size=60))
def test_what_is_no_message_of_a_copy_is_refused(wire: bytes) -> None:
    whole = b"\x12" + bytes((len(wire),)) + wire
    try:
        read = DECODE(whole)
    except DecodeError:
        return
    assert isinstance(read, WireChunk)
    assert len(read.data) <= len(wire)


@pytest.mark.parametrize("cut", [1, 6, 10])
def test_a_chunk_that_was_cut_off_is_refused(cut: int) -> None:
    chunk = pb.CopyChunk(part=pb.SEGMENT_PART_SEGMENT, data=b"abc" * 10, crc32c=9)
    wire = COPY(chunk=chunk).SerializeToString()

    with pytest.raises(DecodeError):
        DECODE(wire[:-cut])
