"""The framing that Java clients put around snappy blocks; other clients send one bare block."""

import struct
from collections.abc import Iterator
from typing import Final

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.checksum import Buffer

__all__ = ["iter_snappy_blocks"]

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER_BYTES: Final = 16  # the magic, the version and the lowest compatible version
_LENGTH: Final = struct.Struct(">i")


def iter_snappy_blocks(data: Buffer) -> Iterator[memoryview]:
    """Yield the raw snappy blocks of compressed records, framed or not.

    Raises:
        CorruptRecordError: The framing is cut short.
    """
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        yield view
        return
    position = _HEADER_BYTES
    while position < len(view):
        start = position + _LENGTH.size
        if start > len(view):
            raise CorruptRecordError(f"snappy framing is cut short at byte {position}")
        (length,) = _LENGTH.unpack_from(view, position)
        if length < 0 or start + length > len(view):
            raise CorruptRecordError(f"snappy block of {length} bytes at byte {position}")
        yield view[start : start + length]
        position = start + length
