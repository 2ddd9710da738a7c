"""The batch view, iteration and in-place patches, on golden bytes (K-6.2, K-6.8)."""

import struct

import google_crc32c
import pytest
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.checksum import crc32c
from aquifer_core.formats.record_batch import (
    BATCH_HEADER_BYTES,
    CompressionCodec,
    RecordBatch,
    TimestampType,
    complete_batches_size,
    iter_batches,
    patch_header,
    patch_max_timestamp_and_type,
    validate_crc,
)
from aquifer_core.formats.records import Record, decode_records, encode_batch

# Offsets 1000..1001, epoch 5, transactional producer 9/epoch 2/sequence 7, records
# ("k" -> "v", header h=x) at 1700000000000 and (null -> "ww") 5 ms later.
GOLDEN_BODY = bytes.fromhex(
    "0010"  # attributes: transactional
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56805"  # max timestamp
    "0000000000000009"  # producer id
    "0002"  # producer epoch
    "00000007"  # base sequence
    "00000002"  # record count
    "18" "00" "00" "00" "026b" "0276" "02" "0268" "0278"
    "10" "00" "0a" "02" "01" "047777" "00"
)  # fmt: skip
GOLDEN = (
    struct.pack(">qiibI", 1000, 9 + len(GOLDEN_BODY), 5, 2, google_crc32c.value(GOLDEN_BODY))
    + GOLDEN_BODY
)
GOLDEN_RECORDS = [
    Record(offset=1000, timestamp_ms=1700000000000, key=b"k", value=b"v", headers=(("h", b"x"),)),
    Record(offset=1001, timestamp_ms=1700000000005, key=None, value=b"ww"),
]


def test_every_header_field_of_the_golden_batch_is_read() -> None:
    batch = RecordBatch(b"\xff" * 3 + GOLDEN + b"\xff", 3)

    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1000, 1001, 1002)
    assert (batch.position, batch.size_bytes, bytes(batch.data)) == (3, len(GOLDEN), GOLDEN)
    assert bytes(batch.records_data) == GOLDEN[BATCH_HEADER_BYTES:]
    assert (batch.partition_leader_epoch, batch.magic) == (5, 2)
    assert (batch.attributes, batch.codec) == (0x10, CompressionCodec.NONE)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.is_transactional, batch.is_control, batch.has_delete_horizon) == (
        True,
        False,
        False,
    )
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1700000000000, 1700000000005)
    assert (batch.producer_id, batch.producer_epoch) == (9, 2)
    assert (batch.base_sequence, batch.last_sequence) == (7, 8)
    assert (batch.last_offset_delta, batch.record_count) == (1, 2)
    validate_crc(batch)


def test_golden_batch_decodes_to_its_records_and_encodes_back_to_its_bytes() -> None:
    assert list(decode_records(RecordBatch(GOLDEN))) == GOLDEN_RECORDS
    encoded = encode_batch(
        GOLDEN_RECORDS,
        partition_leader_epoch=5,
        is_transactional=True,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
    )
    assert encoded == GOLDEN


def test_iteration_does_not_copy_and_stops_at_a_partial_batch() -> None:
    buffer = bytearray(GOLDEN * 3 + GOLDEN[:-1])
    batches = list(iter_batches(buffer))

    assert [batch.position for batch in batches] == [0, len(GOLDEN), 2 * len(GOLDEN)]
    assert all(batch.data.obj is buffer for batch in batches)
    assert complete_batches_size(buffer) == 3 * len(GOLDEN)
    assert complete_batches_size(buffer, len(GOLDEN)) == 2 * len(GOLDEN)


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_every_truncated_batch_is_the_end_of_data(size: int) -> None:
    """K-6.8."""
    assert list(iter_batches(GOLDEN[:size])) == []
    assert complete_batches_size(GOLDEN[:size]) == 0
    with pytest.raises(CorruptRecordError, match="incomplete"):
        RecordBatch(GOLDEN[:size])


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 13])
@pytest.mark.parametrize("size", [17, len(GOLDEN)])
def test_stored_length_below_14_is_corrupt(length: int, size: int) -> None:
    """K-6.8."""
    data = bytearray(GOLDEN)
    struct.pack_into(">i", data, 8, length)

    with pytest.raises(CorruptRecordError, match="too small"):
        list(iter_batches(data[:size]))
    with pytest.raises(CorruptRecordError, match="too small"):
        complete_batches_size(data[:size])


@pytest.mark.parametrize("size", [60, len(GOLDEN)])
def test_length_too_small_for_the_header_is_corrupt(size: int) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">i", data, 8, 48)
    with pytest.raises(CorruptRecordError, match="header of magic 2"):
        list(iter_batches(data[:size]))


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_unsupported_magic_is_corrupt(magic: int) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">b", data, 16, magic)
    with pytest.raises(CorruptRecordError, match=f"unsupported magic {magic}"):
        list(iter_batches(data))


def test_batches_before_a_corrupt_one_are_yielded() -> None:
    batches = iter_batches(GOLDEN + bytes(100))
    assert next(batches).base_offset == 1000
    with pytest.raises(CorruptRecordError):
        next(batches)


@pytest.mark.parametrize("position", range(21, len(GOLDEN)))
def test_crc_covers_every_byte_after_it(position: int) -> None:
    data = bytearray(GOLDEN)
    data[position] ^= 0x40
    with pytest.raises(CorruptRecordError, match="stored crc"):
        validate_crc(RecordBatch(data))


def test_patching_offset_and_epoch_keeps_the_crc_valid() -> None:
    data = bytearray(b"\x00" * 7 + GOLDEN)
    patch_header(memoryview(data), 7, 1 << 40, 123)

    batch = RecordBatch(data, 7)
    assert (batch.base_offset, batch.last_offset) == (1 << 40, (1 << 40) + 1)
    assert batch.partition_leader_epoch == 123
    assert data[7 + 16 :] == GOLDEN[16:]
    validate_crc(batch)


def test_log_append_time_replaces_every_timestamp_and_keeps_the_crc_valid() -> None:
    data = bytearray(GOLDEN + GOLDEN)
    patch_max_timestamp_and_type(data, len(GOLDEN), 1800000000000)

    first, second = iter_batches(data)
    validate_crc(first)
    validate_crc(second)
    assert first.timestamp_type is TimestampType.CREATE_TIME
    assert second.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert second.is_transactional
    assert second.max_timestamp_ms == 1800000000000
    assert [record.timestamp_ms for record in decode_records(second)] == [1800000000000] * 2

    patch_max_timestamp_and_type(
        data, len(GOLDEN), 1700000000005, timestamp_type=TimestampType.CREATE_TIME
    )
    assert data == GOLDEN + GOLDEN


def test_last_sequence_wraps_and_is_undefined_without_a_base() -> None:
    records = [Record(offset=offset, timestamp_ms=0) for offset in range(4)]
    wrapped = RecordBatch(encode_batch(records, producer_id=1, base_sequence=2**31 - 2))
    assert wrapped.last_sequence == 1
    assert RecordBatch(encode_batch(records)).last_sequence == -1


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_is_corrupt(number: int) -> None:
    data = bytearray(GOLDEN)
    data[22] = number
    with pytest.raises(CorruptRecordError, match=f"unknown codec {number}"):
        _ = RecordBatch(data).codec


def test_checksum_is_the_same_for_every_kind_of_buffer_and_size() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = bytes(range(256)) * 4097
    expected = google_crc32c.value(data)
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(data)) == expected
    assert crc32c(memoryview(data)[1000:], crc32c(data[:1000])) == expected
