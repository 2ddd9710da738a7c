"""Malformed records, gaps, and control batches."""

import struct

import pytest
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.control_records import (
    ControlRecordType,
    EndTxnMarker,
    decode_end_txn_batch,
    decode_end_txn_marker,
    encode_end_txn_batch,
)
from aquifer_core.formats.record_batch import BATCH_HEADER_BYTES, RecordBatch, validate_crc
from aquifer_core.formats.records import Record, decode_records, encode_batch
from aquifer_core.formats.varint import append_varint, read_varint, read_varlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_zig_zag(value: int, encoded: str) -> None:
    out = bytearray()
    append_varint(out, value)
    assert out.hex() == encoded
    assert read_varlong(bytes(out), 0) == (value, len(out))
    if len(out) <= 5:
        assert read_varint(b"\x00" + out, 1) == (value, 1 + len(out))
    else:
        with pytest.raises(CorruptRecordError, match="too long"):
            read_varint(bytes(out), 0)


def test_a_batch_with_gaps_keeps_its_base_and_last_offset() -> None:
    records = [
        Record(offset=105, timestamp_ms=5, value=b"a"),
        Record(offset=109, timestamp_ms=3, value=b"b"),
    ]
    batch = RecordBatch(encode_batch(records, base_offset=100))
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 109, 2)
    assert batch.max_timestamp_ms == 5
    assert list(decode_records(batch)) == records


def test_foreign_bytes_in_header_keys_survive() -> None:
    data = encode_batch([Record(offset=0, timestamp_ms=0, headers=(("\udcff", b"x"),))])
    assert b"\x02\xff\x02x" in data
    (record,) = decode_records(RecordBatch(data))
    assert record.headers == (("\udcff", b"x"),)


def test_log_append_time_can_be_encoded() -> None:
    records = [Record(offset=0, timestamp_ms=5), Record(offset=1, timestamp_ms=9)]
    batch = RecordBatch(encode_batch(records, log_append_time_ms=77))
    assert [record.timestamp_ms for record in decode_records(batch)] == [77, 77]
    assert batch.base_timestamp_ms == 5


def test_an_empty_batch_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


def _with_payload(payload: bytes, count: int = 1) -> RecordBatch:
    data = bytearray(encode_batch([Record(offset=0, timestamp_ms=0)])[:BATCH_HEADER_BYTES])
    data += payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    return RecordBatch(data)


@pytest.mark.parametrize(
    ("payload", "count", "what"),
    [
        ("", 1, "cut short"),
        ("0c0000000101", 1, "does not fit"),
        ("01", 1, "does not fit"),
        ("ffffffffff0f", 1, "too long"),
        ("0c000000010100" "00", 1, "left after the last record"),
        ("0e000000010100" "00", 1, "bytes off"),
        ("0c000000010100", 2, "cut short"),
        ("0c000000010100", 0, "left after the last record"),
        ("0c000000010100", -1, "negative"),
        ("0c00000020" "0100", 1, "a field of 16 bytes"),
        ("0c000000010101", 1, "header count -1"),
        ("0e00000001010201", 1, "header has no key"),
        ("0c0000000101fe", 1, "cut short"),
    ],
)  # fmt: skip
def test_malformed_records_are_corrupt(payload: str, count: int, what: str) -> None:
    with pytest.raises(CorruptRecordError, match=what):
        list(decode_records(_with_payload(bytes.fromhex(payload), count)))


@pytest.mark.parametrize("kind", list(ControlRecordType))
def test_transaction_markers_round_trip(kind: ControlRecordType) -> None:
    marker = EndTxnMarker(control_type=kind, coordinator_epoch=12)
    batch = RecordBatch(
        encode_end_txn_batch(
            marker,
            base_offset=50,
            timestamp_ms=9,
            producer_id=4,
            producer_epoch=1,
            partition_leader_epoch=6,
        )
    )
    validate_crc(batch)
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.base_offset, batch.last_offset, batch.base_sequence) == (50, 50, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.partition_leader_epoch) == (4, 1, 6)
    (record,) = decode_records(batch)
    assert record.key == b"\x00\x00\x00" + bytes([kind])
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"
    assert decode_end_txn_batch(batch) == marker


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00" * 6),
        (b"\x00" * 4, None),
        (b"\x00\x00\x00", b"\x00" * 6),
        (b"\x00\x00\x00\x02", b"\x00" * 6),
        (b"\xff\xff\x00\x01", b"\x00" * 6),
    ],
)
def test_other_control_records_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="no transaction marker"):
        decode_end_txn_marker(Record(offset=0, timestamp_ms=0, key=key, value=value))


def test_a_data_batch_is_no_control_batch() -> None:
    batch = RecordBatch(encode_batch([Record(offset=0, timestamp_ms=0)]))
    with pytest.raises(CorruptRecordError, match="no control batch"):
        decode_end_txn_batch(batch)
