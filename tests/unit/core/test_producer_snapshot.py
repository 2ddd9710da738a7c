"""Producer snapshots on golden bytes (K-6.5)."""

import struct

import google_crc32c
import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)

ENTRIES = [
    ProducerSnapshotEntry(1000, 3, 41, 1 << 33, 9, 1700000000000, 5, 123),
    ProducerSnapshotEntry(1001, 0, -1, 77, 0, -1),
]
BODY = bytes.fromhex(
    "00000002"
    "00000000000003e8" "0003" "00000029" "0000000200000000" "00000009" "0000018bcfe56800"
    "00000005" "000000000000007b"
    "00000000000003e9" "0000" "ffffffff" "000000000000004d" "00000000" "ffffffffffffffff"
    "ffffffff" "ffffffffffffffff"
)  # fmt: skip
GOLDEN = struct.pack(">hI", 1, google_crc32c.value(BODY)) + BODY


def test_snapshots_are_read_and_written_as_kafka_lays_them_out() -> None:
    assert encode_snapshot(ENTRIES) == GOLDEN
    assert decode_snapshot(memoryview(GOLDEN)) == ENTRIES
    assert len(GOLDEN) == 10 + 2 * 46


def test_an_empty_snapshot_has_10_bytes() -> None:
    empty = encode_snapshot([])
    assert len(empty) == 10
    assert decode_snapshot(empty) == []


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_cut_snapshots_are_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError, match="producer snapshot"):
        decode_snapshot(GOLDEN[:size])


@pytest.mark.parametrize("position", range(len(GOLDEN)))
def test_a_changed_byte_is_noticed_wherever_it_is(position: int) -> None:
    data = bytearray(GOLDEN)
    data[position] ^= 0x01
    with pytest.raises(CorruptIndexError, match="crc" if position > 1 else "version"):
        decode_snapshot(data)


@pytest.mark.parametrize("count", [-1, 1, 3])
def test_a_count_that_does_not_match_the_size_is_corrupt(count: int) -> None:
    body = struct.pack(">i", count) + BODY[4:]
    data = struct.pack(">hI", 1, google_crc32c.value(body)) + body
    with pytest.raises(CorruptIndexError, match=f"for {count} entries"):
        decode_snapshot(data)
