"""Compression of chunks with zstd, each as one frame."""

from collections.abc import Sequence
from typing import Final

import zstandard
from aquifer_core.formats.checksum import Buffer

NO_CODEC: Final = "none"
ZSTD: Final = "zstd"
CODECS: Final = (NO_CODEC, ZSTD)
DEFAULT_LEVEL: Final = 1
MAX_LEVEL: Final = 19
_LEAST_SAVED: Final = 32
_SAMPLES: Final = 8
_SAMPLE_BYTES: Final = 16 * 1024


def compress(pieces: Sequence[Buffer], level: int) -> list[bytes] | None:
    """Compress pieces as one; none when that saves less than one part in 32 (3 %).

    Large pieces are judged by a sample first, so that what does not shrink costs little. Releases the interpreter lock.
    """
    size_bytes = sum(len(piece) for piece in pieces)
    if (
        size_bytes > 2 * _SAMPLES * _SAMPLE_BYTES
        and _frame([_sample(pieces, size_bytes)], 1) is None
    ):
        return None
    return _frame(pieces, level)


def _frame(pieces: Sequence[Buffer], level: int) -> list[bytes] | None:
    size_bytes = sum(len(piece) for piece in pieces)
    # Chunks have their own CRC.
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=False)
    frame = compressor.compressobj(size=size_bytes)
    compressed = [frame.compress(piece) for piece in pieces]
    compressed.append(frame.flush())
    stored_bytes = sum(len(piece) for piece in compressed)
    return None if stored_bytes > size_bytes - size_bytes // _LEAST_SAVED else compressed


def _sample(pieces: Sequence[Buffer], size_bytes: int) -> bytes:
    """Return bytes from places evenly spread over the pieces."""
    found: list[memoryview] = []
    stride, position, wanted = size_bytes // _SAMPLES, 0, 0
    for piece in pieces:
        view = memoryview(piece)
        while wanted < position + len(view):
            start = wanted - position
            found.append(view[start : start + _SAMPLE_BYTES])
            wanted += stride
        position += len(view)
    return b"".join(found)


def decompress(data: Buffer, size_bytes: int) -> bytes | None:
    """Decompress a frame of a known size; none when it is not such a frame.

    The size in the frame is compared before memory is spent on it. Releases the interpreter lock.
    """
    try:
        if zstandard.frame_content_size(data) != size_bytes:
            return None
        opened = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        return None
    return opened if len(opened) == size_bytes else None
