"""Decompresses record batches with every codec that Kafka has."""

from collections.abc import Callable
from typing import Any, Final

import cramjam
from aquifer_core.formats.record_batch import CompressionCodec
from aquifer_core.formats.snappy_framing import iter_snappy_blocks

__all__ = ["decompress"]


def _snappy(data: memoryview) -> bytes:
    """Java's framing of several raw blocks, or one raw block."""
    return b"".join(
        bytes(cramjam.snappy.decompress_raw(block)) for block in iter_snappy_blocks(data)
    )


def _codec(function: Any) -> Callable[[memoryview], bytes]:
    return lambda data: bytes(function(data))


_BY_CODEC: Final[dict[CompressionCodec, Callable[[memoryview], bytes]]] = {
    CompressionCodec.NONE: bytes,
    CompressionCodec.GZIP: _codec(cramjam.gzip.decompress),
    CompressionCodec.SNAPPY: _snappy,
    CompressionCodec.LZ4: _codec(cramjam.lz4.decompress),
    CompressionCodec.ZSTD: _codec(cramjam.zstd.decompress),
}


def decompress(codec: CompressionCodec, data: memoryview) -> bytes:
    """See `Decompressor`; raises whatever the codec raises for damaged bytes."""
    return _BY_CODEC[codec](data)
