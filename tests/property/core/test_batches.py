"""Batches round trip, and garbage is refused cleanly."""

import pytest
from aquifer_core.errors import CorruptRecordError
from aquifer_core.formats.control_records import decode_end_txn_batch
from aquifer_core.formats.record_batch import (
    RecordBatch,
    TimestampType,
    complete_batches_size,
    iter_batches,
    patch_header,
    patch_max_timestamp_and_type,
    validate_crc,
)
from aquifer_core.formats.records import Record, decode_records, encode_batch
from aquifer_core.formats.snappy_framing import iter_snappy_blocks
from aquifer_core.formats.varint import append_varint, read_varlong
from hypothesis import given
from hypothesis import strategies as st

OFFSETS = st.integers(0, 2**62)
TIMESTAMPS_MS = st.integers(-1, 2**60)
FIELDS = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), FIELDS), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    base = draw(OFFSETS)
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=8)))
    return [
        Record(
            offset=base + delta,
            timestamp_ms=draw(TIMESTAMPS_MS),
            key=draw(FIELDS),
            value=draw(FIELDS),
            headers=draw(HEADERS),
        )
        for delta in deltas
    ]


def read_everything(data: bytes) -> list[RecordBatch]:
    """Read as far as possible; only CorruptRecordError may come out of it."""
    batches = []
    try:
        for batch in iter_batches(data):
            batches.append(batch)
            list(decode_records(batch, lambda _, compressed: bytes(compressed)))
            if batch.is_control:
                decode_end_txn_batch(batch)
    except CorruptRecordError:
        pass
    return batches


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varlong(bytes(out), 0) == (value, len(out))
    assert len(out) <= 10


@given(record_lists(), st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_records_round_trip(records: list[Record], epoch: int, sequence: int) -> None:
    data = encode_batch(
        records, partition_leader_epoch=epoch, producer_id=1, base_sequence=sequence
    )
    batch = RecordBatch(data)
    validate_crc(batch)
    assert list(decode_records(batch)) == records
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.record_count == len(records)
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert (batch.partition_leader_epoch, batch.base_sequence) == (epoch, sequence)


@given(record_lists(), OFFSETS, TIMESTAMPS_MS)
def test_patches_change_what_they_say_and_nothing_else(
    records: list[Record], base_offset: int, timestamp_ms: int
) -> None:
    data = bytearray(encode_batch(records))
    patch_header(data, 0, base_offset, 9)
    moved = list(decode_records(RecordBatch(data)))
    assert [record.offset - base_offset for record in moved] == [
        record.offset - records[0].offset for record in records
    ]
    assert [record.value for record in moved] == [record.value for record in records]
    patch_max_timestamp_and_type(data, 0, timestamp_ms)
    batch = RecordBatch(data)
    validate_crc(batch)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in decode_records(batch)} == {timestamp_ms}


@given(st.lists(record_lists(), max_size=4), st.data())
def test_complete_batches_are_found_wherever_the_data_is_cut(
    batches: list[list[Record]], data: st.DataObject
) -> None:
    encoded = [encode_batch(records) for records in batches]
    whole = b"".join(encoded)
    size = data.draw(st.integers(0, len(whole)))
    cut = whole[:size]
    found = list(iter_batches(cut))
    assert [bytes(batch.data) for batch in found] == encoded[: len(found)]
    assert complete_batches_size(cut) == sum(batch.size_bytes for batch in found)
    assert len(found) == len(encoded) or size < sum(map(len, encoded[: len(found) + 1]))


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_ends_the_data(garbage: bytes) -> None:
    batches = read_everything(garbage)
    assert sum(batch.size_bytes for batch in batches) <= len(garbage)
    try:
        assert complete_batches_size(garbage) <= len(garbage)
    except CorruptRecordError:
        assert len(garbage) >= 17


@given(record_lists(), st.data())
def test_damage_is_always_noticed(records: list[Record], data: st.DataObject) -> None:
    original = encode_batch(records)
    damaged = bytearray(original)
    # Base offset and leader epoch are outside the CRC; the length decides what a batch is.
    position = data.draw(st.integers(16, len(original) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    read_everything(bytes(damaged))
    with pytest.raises(CorruptRecordError):
        validate_crc(RecordBatch(damaged))


@given(record_lists(), st.binary(max_size=60), st.integers(-2, 20))
def test_garbage_records_are_refused(records: list[Record], payload: bytes, count: int) -> None:
    data = bytearray(encode_batch(records)[:61] + payload)
    data[8:12] = (49 + len(payload)).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big", signed=True)
    assert len(read_everything(bytes(data))) == 1


@given(st.binary(max_size=60), st.booleans())
def test_garbage_snappy_framing_is_refused(garbage: bytes, framed: bool) -> None:
    data = b"\x82SNAPPY\x00" + garbage if framed else garbage
    try:
        blocks = list(iter_snappy_blocks(data))
    except CorruptRecordError:
        return
    assert sum(map(len, blocks)) <= len(data)
