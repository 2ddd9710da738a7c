"""Bytes as the pieces of a stream of messages."""

from collections.abc import Iterator
from typing import Final, TypeVar, cast

from aquifer_core.formats.checksum import Buffer, crc32c
from google.protobuf.message import Message

MAX_DATA_BYTES: Final = 1 << 20

_POSITION: Final = b"\x08"  # field 1, int64
_DATA: Final = b"\x12"  # field 2, bytes
_CRC32C: Final = b"\x1d"  # field 3, fixed32

_Response = TypeVar("_Response", bound=Message)


def encoded_pieces(response: type[_Response], position: int, data: Buffer) -> Iterator[_Response]:
    """Yield messages of at most 1 MiB of data each, in their encoded form, which `GrpcServer` sends as it is.

    Every message with `position = 1`, `data = 2` and `crc32c = 3` can be made so. Protobuf would copy the data three times, into the
    message and out of it; this copies it once.

    Args:
        response: type of the messages.
        position: position of the first byte.
        data: the bytes.
    """
    view = memoryview(data)
    for start in range(0, len(view), MAX_DATA_BYTES):
        piece = view[start : start + MAX_DATA_BYTES]
        header = _POSITION + _varint(position + start) + _DATA + _varint(len(piece))
        trailer = _CRC32C + crc32c(piece).to_bytes(4, "little")
        yield cast(_Response, b"".join((header, piece, trailer)))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
