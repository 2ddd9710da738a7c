"""Frames out of a byte stream, however it is cut."""

import struct

import pytest
from aquifer_broker.protocol.framing import FrameDecoder, FrameTooLargeError
from hypothesis import given
from hypothesis import strategies as st


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(decoder: FrameDecoder, data: bytes) -> list[bytes]:
    frames = []
    while data:
        buffer = decoder.buffer()
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        frames += [bytes(frame) for frame in decoder.advance(size)]
        data = data[size:]
    return frames


@given(
    payloads=st.lists(st.binary(max_size=200)),
    cuts=st.lists(st.integers(min_value=1, max_value=300)),
)
def test_frames_come_out_whole_and_in_order_however_the_stream_is_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    stream = framed(*payloads)
    decoder = FrameDecoder(1000)
    frames: list[bytes] = []
    for cut in [*cuts, len(stream)]:
        frames += feed(decoder, stream[:cut])
        stream = stream[cut:]
    assert frames == payloads


def test_a_large_frame_between_small_ones_is_received_in_place() -> None:
    large = bytes(range(256)) * 4096
    decoder = FrameDecoder(2_000_000)
    assert feed(decoder, framed(b"a", large, b"b")) == [b"a", large, b"b"]
    assert decoder.partial_frame_bytes == 0


def test_frames_stay_valid_while_the_decoder_goes_on() -> None:
    decoder = FrameDecoder(1000)
    data = framed(b"first")
    decoder.buffer()[: len(data)] = data
    (first,) = decoder.advance(len(data))
    feed(decoder, framed(b"other"))
    assert bytes(first) == b"first"
    assert first.readonly


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_an_unacceptable_size_is_refused_before_anything_is_allocated(size: int) -> None:
    decoder = FrameDecoder(1000)
    with pytest.raises(FrameTooLargeError, match=r"socket\.request\.max\.bytes is 1000"):
        feed(decoder, struct.pack(">i", size))
    assert decoder.partial_frame_bytes == 0


def test_the_size_of_a_frame_is_known_before_the_frame_is_there() -> None:
    decoder = FrameDecoder(1000)
    feed(decoder, struct.pack(">i", 900) + b"x" * 10)
    assert decoder.partial_frame_bytes == 900
    assert len(decoder.buffer()) == 890
