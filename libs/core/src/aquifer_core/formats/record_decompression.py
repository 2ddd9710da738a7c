"""Opening compressed batches, where a single record has to be seen."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam

from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.record_batch import CompressionCodec, RecordBatch
from aquifer_core.formats.records import Record, decode_records
from aquifer_core.formats.snappy_framing import iter_snappy_blocks

__all__ = ["open_batch"]

_LIMIT_BYTES: Final = 128 << 20
"""What the records of a batch may grow to; a client may send kilobytes that would fill any memory."""
_FIRST_BYTES: Final = 64 << 10

_DECOMPRESS_INTO: Final[dict[CompressionCodec, Callable[[Any, Any], int]]] = {
    CompressionCodec.GZIP: cramjam.gzip.decompress_into,
    CompressionCodec.LZ4: cramjam.lz4.decompress_into,
    CompressionCodec.ZSTD: cramjam.zstd.decompress_into,
}


def open_batch(batch: RecordBatch) -> Iterator[Record]:
    """Yields the records of a batch of any codec.

    Raises:
        CorruptRecordError: The batch cannot be opened, or not within 128 MiB.
    """
    return decode_records(batch, _decompress)


def _decompress(codec: CompressionCodec, data: memoryview) -> bytes:
    if codec is CompressionCodec.SNAPPY:
        return _decompress_snappy(data)
    into = _DECOMPRESS_INTO.get(codec)
    if into is None:
        raise CorruptRecordError(f"codec {codec!r} compresses nothing")
    size = max(_FIRST_BYTES, 4 * len(data))
    while True:
        buffer = bytearray(min(size, _LIMIT_BYTES))
        try:
            return bytes(memoryview(buffer)[: into(data, buffer)])
        except cramjam.DecompressionError:
            # Damaged, or too large: that cannot be told apart.
            if size >= _LIMIT_BYTES:
                raise
            size *= 8


def _decompress_snappy(data: memoryview) -> bytes:
    blocks = list(iter_snappy_blocks(data))
    size_bytes = sum(cramjam.snappy.decompress_raw_len(block) for block in blocks)
    if size_bytes > _LIMIT_BYTES:
        raise CorruptRecordError(f"{size_bytes} bytes of records in one batch")
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
