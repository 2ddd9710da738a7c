"""Messages that carry up to 1 MiB of bytes, without the copies that protobuf makes of them.

Protobuf copies the bytes into a message, out of it, and again each time they are looked at. Here they are written once, straight into the
encoded message, which `GrpcServer` sends as it is, and read where they lie. What is on the wire is what protobuf would have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar, cast

from aquifer_core.formats.checksum import Buffer, crc32c
from google.protobuf.message import DecodeError, Message

__all__ = [
    "MAX_DATA_BYTES",
    "WireChunk",
    "WirePiece",
    "decode_chunk_or",
    "decode_piece",
    "encode_chunk_or",
    "encoded_data",
    "encoded_pieces",
    "large_bytes_or",
]

MAX_DATA_BYTES: Final = 1 << 20

_POSITION: Final = 1  # int64
_DATA: Final = 2  # bytes
_CRC32C: Final = 3  # fixed32

_PART: Final = 1  # enum
_POSITION_IN_PART: Final = 2  # int64
_DATA_OF_PART: Final = 3  # bytes
_CRC32C_OF_DATA: Final = 4  # fixed32

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5

_Response = TypeVar("_Response", bound=Message)


class WirePiece(NamedTuple):
    """A piece of a stream of bytes; `data` lies in the message that came."""

    position: int
    data: memoryview
    crc32c: int


class WireChunk(NamedTuple):
    """A chunk of one of the parts of a segment that is copied; `data` of one that came lies in its message."""

    part: int
    position: int
    data: bytes | memoryview
    crc32c: int


def encoded_pieces(response: type[_Response], position: int, data: Buffer) -> Iterator[_Response]:
    """Yield encoded messages with `position = 1`, `data = 2` and `crc32c = 3`, of at most 1 MiB of data each.

    Args:
        response: type of the messages.
        position: position of the first byte.
        data: the bytes.
    """
    for start, piece in _cut(data):
        header = _tag(_POSITION, _VARINT) + _varint(position + start) + _length(_DATA, len(piece))
        trailer = _tag(_CRC32C, _FIXED32) + crc32c(piece).to_bytes(4, "little")
        yield cast(_Response, b"".join((header, piece, trailer)))


def encoded_data(response: type[_Response], field: int, data: Buffer) -> Iterator[_Response]:
    """Yield encoded messages with nothing but a bytes field, of at most 1 MiB each."""
    for _, piece in _cut(data):
        yield cast(_Response, b"".join((_length(field, len(piece)), piece)))


def decode_piece(wire: bytes) -> WirePiece:
    """Read a message as `encoded_pieces` makes it; fields that it does not know are skipped.

    Raises:
        DecodeError: it is not a message.
    """
    view = memoryview(wire)
    position = checksum = 0
    data = view[:0]
    for field, value in _fields(view):
        if field == _POSITION and isinstance(value, int):
            position = _signed(value)
        elif field == _DATA and isinstance(value, memoryview):
            data = value
        elif field == _CRC32C and isinstance(value, int):
            checksum = value
    return WirePiece(position, data, checksum)


def encode_chunk_or(
    encode: Callable[[_Response], bytes], field: int
) -> Callable[[_Response | WireChunk], bytes]:
    """An encoder of messages with `part = 1`, `position = 2`, `data = 3` and `crc32c = 4` in a field of another; others as told."""

    def encoded(message: _Response | WireChunk) -> bytes:
        if not isinstance(message, WireChunk):
            return encode(message)
        part, position, data, checksum = message
        header = b"".join(
            (
                _tag(_PART, _VARINT) + _varint(part),
                _tag(_POSITION_IN_PART, _VARINT) + _varint(position),
                _length(_DATA_OF_PART, len(data)),
            )
        )
        trailer = _tag(_CRC32C_OF_DATA, _FIXED32) + checksum.to_bytes(4, "little")
        size_bytes = len(header) + len(data) + len(trailer)
        return b"".join((_length(field, size_bytes), header, data, trailer))

    return encoded


def decode_chunk_or(
    decode: Callable[[bytes], _Response], field: int
) -> Callable[[bytes], _Response | WireChunk]:
    """A decoder of what `encode_chunk_or` encodes; it decodes other messages as told."""
    content = _only_field(field)

    def decoded(wire: bytes) -> _Response | WireChunk:
        chunk = content(wire)
        return decode(wire) if chunk is None else _chunk(chunk)

    return decoded


def large_bytes_or(
    decode: Callable[[bytes], _Response], field: int
) -> Callable[[bytes], _Response | memoryview]:
    """A decoder that gives the bytes of messages with nothing but one bytes field, and decodes others as told."""
    content = _only_field(field)

    def decoded(wire: bytes) -> _Response | memoryview:
        data = content(wire)
        return decode(wire) if data is None else data

    return decoded


def _only_field(field: int) -> Callable[[bytes], memoryview | None]:
    """Gives the content of messages that are one field with a length and nothing else."""
    tag = _tag(field, _LENGTH)

    def content(wire: bytes) -> memoryview | None:
        if not wire.startswith(tag):
            return None
        view = memoryview(wire)
        size_bytes, start = _read_varint(view, len(tag))
        return view[start:] if start + size_bytes == len(wire) else None

    return content


def _chunk(view: memoryview) -> WireChunk:
    part = position = checksum = 0
    data = view[:0]
    for field, value in _fields(view):
        if isinstance(value, memoryview):
            data = value if field == _DATA_OF_PART else data
        elif field == _PART:
            part = value
        elif field == _POSITION_IN_PART:
            position = _signed(value)
        elif field == _CRC32C_OF_DATA:
            checksum = value
    return WireChunk(part, position, data, checksum)


def _cut(data: Buffer) -> Iterator[tuple[int, memoryview]]:
    view = memoryview(data)
    for start in range(0, len(view), MAX_DATA_BYTES):
        yield start, view[start : start + MAX_DATA_BYTES]


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at, end = 0, len(view)
    while at < end:
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield tag >> 3, value
            continue
        if kind == _LENGTH:
            size_bytes, at = _read_varint(view, at)
        else:
            size_bytes = {_FIXED64: 8, _FIXED32: 4}.get(kind, end)
        content = view[at : at + size_bytes]
        if len(content) < size_bytes:
            raise DecodeError("a message was cut off or is none")
        at += size_bytes
        yield tag >> 3, content if kind == _LENGTH else int.from_bytes(content, "little")


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("a message was cut off or is none")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _tag(field: int, kind: int) -> bytes:
    return bytes((field << 3 | kind,))


def _length(field: int, size_bytes: int) -> bytes:
    return _tag(field, _LENGTH) + _varint(size_bytes)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
