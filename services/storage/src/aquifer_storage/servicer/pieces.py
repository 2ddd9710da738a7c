"""Bytes as the pieces of a stream of messages."""

from collections.abc import Iterator
from typing import Final

from aquifer_core.formats.checksum import Buffer

MAX_DATA_BYTES: Final = 1 << 20


def pieces(position: int, data: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of at most 1 MiB, each with its position.

    Args:
        position: position of the first byte.
        data: the bytes.
    """
    view = memoryview(data)
    for start in range(0, len(view), MAX_DATA_BYTES):
        yield position + start, bytes(view[start : start + MAX_DATA_BYTES])
