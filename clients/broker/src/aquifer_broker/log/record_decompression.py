"""Opening compressed batches, where a single record has to be seen."""

from collections.abc import Iterator

import cramjam
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.record_batch import CompressionCodec, RecordBatch
from aquifer_core.formats.records import Record, decode_records
from aquifer_core.formats.snappy_framing import iter_snappy_blocks

__all__ = ["open_batch"]


def open_batch(batch: RecordBatch) -> Iterator[Record]:
    """Yields the records of a batch of any codec.

    Raises:
        CorruptRecordError: The batch cannot be opened.
    """
    return decode_records(batch, _decompress)


def _decompress(codec: CompressionCodec, data: memoryview) -> bytes:
    if codec is CompressionCodec.GZIP:
        return bytes(cramjam.gzip.decompress(data))
    if codec is CompressionCodec.LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec is CompressionCodec.ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    if codec is CompressionCodec.SNAPPY:
        blocks = iter_snappy_blocks(data)
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
    raise CorruptRecordError(f"codec {codec!r} compresses nothing")
