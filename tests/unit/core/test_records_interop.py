"""What stock clients encode is read identically, for every codec, and the other way round."""

import warnings
from collections.abc import Callable

import cramjam
import pytest
from aiokafka import codec as client_codec  # type: ignore[import-untyped]
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.record_batch import CompressionCodec, RecordBatch, validate_crc
from aquifer_core.formats.records import Record, decode_records, encode_batch
from aquifer_core.formats.snappy_framing import iter_snappy_blocks

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, while it is imported
    from kafka.record.default_records import (  # type: ignore[import-untyped]
        DefaultRecordBatch as KafkaPythonBatch,
    )
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

RECORDS = [
    Record(offset=0, timestamp_ms=1_700_000_000_000, key=b"key", value=b"value" * 100),
    Record(offset=1, timestamp_ms=1_700_000_000_123, key=None, value=None),
    Record(offset=2, timestamp_ms=1_699_999_999_000, key=b"", value=b""),
    Record(
        offset=3,
        timestamp_ms=1_700_000_086_400,
        key=b"k" * 70,
        value=bytes(range(256)) * 40,
        headers=(("trace", b"\x00\x01"), ("trace", None), ("größe", b"")),
    ),
]
CODECS = list(CompressionCodec)

COMPRESS: dict[CompressionCodec, Callable[[bytes], bytes]] = {
    CompressionCodec.NONE: bytes,
    CompressionCodec.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    CompressionCodec.SNAPPY: client_codec.snappy_encode,
    CompressionCodec.LZ4: client_codec.lz4_encode,
    CompressionCodec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}


def decompress(codec: CompressionCodec, data: memoryview) -> bytes:
    match codec:
        case CompressionCodec.GZIP:
            return bytes(cramjam.gzip.decompress(data))
        case CompressionCodec.SNAPPY:
            blocks = iter_snappy_blocks(data)
            return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
        case CompressionCodec.LZ4:
            return bytes(cramjam.lz4.decompress(data))
        case _:
            return bytes(cramjam.zstd.decompress(data))


def assert_reads_as_written(encoded: bytes, codec: CompressionCodec) -> None:
    batch = RecordBatch(encoded)
    validate_crc(batch)
    assert batch.codec is codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 10)
    assert batch.last_sequence == 13
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (
        1_700_000_000_000,
        1_700_000_086_400,
    )
    assert list(decode_records(batch, decompress)) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_aiokafka_are_read_as_written(codec: CompressionCodec) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=10,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        builder.append(
            record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )
    assert_reads_as_written(bytes(builder.build()), codec)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_kafka_python_are_read_as_written(codec: CompressionCodec) -> None:
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=77,
        producer_epoch=3,
        base_sequence=10,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        builder.append(
            record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )
    assert_reads_as_written(bytes(builder.build()), codec)


@pytest.mark.parametrize("reader", [AiokafkaBatch, KafkaPythonBatch])
@pytest.mark.parametrize("codec", CODECS)
def test_clients_read_our_batches_as_written(
    codec: CompressionCodec, reader: type[AiokafkaBatch] | type[KafkaPythonBatch]
) -> None:
    encoded = encode_batch(
        RECORDS,
        codec=codec,
        compress=COMPRESS[codec],
        is_transactional=True,
        producer_id=77,
        producer_epoch=3,
        base_sequence=10,
    )
    assert_reads_as_written(encoded, codec)
    batch = reader(encoded)
    assert batch.validate_crc()
    read = [
        Record(
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )
        for record in batch
    ]
    assert read == RECORDS


@pytest.mark.parametrize("xerial", [True, False])
def test_snappy_blocks_are_found_framed_and_bare(xerial: bool) -> None:
    data = bytes(range(256)) * 1000
    encoded = client_codec.snappy_encode(data, xerial_compatible=xerial)
    blocks = list(iter_snappy_blocks(encoded))
    assert len(blocks) == (8 if xerial else 1)
    assert b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks) == data


@pytest.mark.parametrize("tail", [b"\x00\x00", b"\x00\x00\x00\x05abcd", b"\xff\xff\xff\xff"])
def test_broken_snappy_framing_is_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="snappy"):
        list(iter_snappy_blocks(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + tail))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_data_that_does_not_decompress_is_corrupt(codec: CompressionCodec) -> None:
    encoded = encode_batch(RECORDS, codec=codec, compress=lambda _: b"\xff" * 40)
    with pytest.raises(CorruptRecordError, match=f"{codec.name} data cannot be decompressed"):
        list(decode_records(RecordBatch(encoded), decompress))


def test_codecs_without_a_function_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a compressor"):
        encode_batch(RECORDS, codec=CompressionCodec.ZSTD)
    encoded = encode_batch(RECORDS, codec=CompressionCodec.ZSTD, compress=bytes)
    with pytest.raises(ValueError, match="needs a decompressor"):
        list(decode_records(RecordBatch(encoded)))
