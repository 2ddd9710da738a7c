"""The chunk table of a copied segment and its companions (SR-32)."""

import struct
from dataclasses import replace

import google_crc32c
import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import (
    REMOTE_LOG_INDEX_ENTRY_BYTES,
    RemoteLogIndex,
    RemoteLogIndexEntry,
    decode_entries,
    encode_remote_offset_index,
    encode_remote_time_index,
)
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ids import KafkaUuid

SEGMENT_ID = KafkaUuid(bytes(range(16)))


def entry(
    first: int, last: int, max_timestamp_ms: int, length: int, position: int = 0
) -> RemoteLogIndexEntry:
    return RemoteLogIndexEntry(
        first_offset=first,
        last_offset=last,
        first_timestamp_ms=10,
        last_timestamp_ms=max_timestamp_ms,
        data_length_bytes=length,
        data_id=RemoteDataId(
            segment_id=SEGMENT_ID,
            position=position,
            stored_length_bytes=length // 2,
            crc32c=0xDEADBEEF,
            is_compressed=True,
        ),
    )


# Offsets have a gap (140..149); timestamps go back in the second chunk.
ENTRIES = (entry(100, 139, 50, 1000), entry(150, 199, 40, 1500, 500), entry(200, 200, 60, 1, 1250))
INDEX = RemoteLogIndex(ENTRIES)

GOLDEN_BODY = bytes.fromhex(
    "0000000000000064" "000000000000008b" "000000000000000a" "0000000000000032"
    "000003e8" "0022"
    "01" "01" "0000000000000000" "000001f4" "deadbeef" "000102030405060708090a0b0c0d0e0f"
)  # fmt: skip
GOLDEN = struct.pack(">hhI", 0, 4 + len(GOLDEN_BODY), google_crc32c.value(GOLDEN_BODY)) + (
    GOLDEN_BODY
)


def test_entries_have_exactly_the_documented_bytes() -> None:
    assert ENTRIES[0].encode() == GOLDEN
    assert len(GOLDEN) == REMOTE_LOG_INDEX_ENTRY_BYTES == 80
    assert list(decode_entries(GOLDEN)) == [(0, ENTRIES[0])]


def test_the_table_round_trips() -> None:
    parsed = RemoteLogIndex.parse(memoryview(INDEX.encode()))
    assert parsed.entries == ENTRIES
    assert len(parsed) == 3
    assert parsed.data_size_bytes == 2501


@pytest.mark.parametrize(
    ("offset", "chunk"),
    [(0, 0), (100, 0), (139, 0), (145, 1), (150, 1), (199, 1), (200, 2), (201, None)],
)
def test_an_offset_is_found_in_the_first_chunk_that_reaches_it(
    offset: int, chunk: int | None
) -> None:
    assert INDEX.find_by_offset(offset) == chunk


@pytest.mark.parametrize(
    ("position", "chunk"),
    [(-1, None), (0, 0), (999, 0), (1000, 1), (2499, 1), (2500, 2), (2501, None)],
)
def test_a_position_of_the_original_log_is_found_by_the_running_sum(
    position: int, chunk: int | None
) -> None:
    assert INDEX.find_by_position(position) == chunk
    if chunk is not None:
        assert INDEX.start_position(chunk) <= position


@pytest.mark.parametrize(("timestamp_ms", "chunk"), [(0, 0), (50, 0), (51, 2), (60, 2), (61, None)])
def test_a_timestamp_is_found_in_the_first_chunk_that_reaches_it(
    timestamp_ms: int, chunk: int | None
) -> None:
    assert INDEX.find_by_timestamp(timestamp_ms) == chunk


@pytest.mark.parametrize(
    ("start", "end", "chunks"),
    [
        (0, 0, range(1)),
        (0, 999, range(1)),
        (999, 1000, range(2)),
        (1000, 2499, range(1, 2)),
        (0, 1 << 40, range(3)),
        (2500, 2500, range(2, 3)),
        (2501, 2600, range(0)),
        (5, 4, range(0)),
        (-1, 10, range(0)),
    ],
)
def test_a_range_of_positions_gives_its_chunks(start: int, end: int, chunks: range) -> None:
    assert INDEX.chunks_between(start, end) == chunks


def test_an_empty_table_finds_nothing() -> None:
    empty = RemoteLogIndex.parse(b"")
    assert (len(empty), empty.data_size_bytes, empty.encode()) == (0, 0, b"")
    assert empty.find_by_offset(0) is None
    assert empty.find_by_position(0) is None
    assert empty.find_by_timestamp(0) is None
    assert empty.chunks_between(0, 10) == range(0)
    assert (empty.remote_offset_index(0), empty.remote_time_index(0)) == (b"", b"")


def test_the_offset_companion_points_at_entries() -> None:
    companion = OffsetIndex(INDEX.remote_offset_index(100), 100)
    companion.verify_entries()
    data = INDEX.encode()
    for offset, chunk in [(100, 0), (139, 0), (150, 1), (199, 1), (200, 2), (9999, 2)]:
        _, position = companion.lookup(offset)
        assert next(decode_entries(data, position)) == (position, ENTRIES[chunk])


def test_the_time_companion_holds_the_largest_timestamp_so_far() -> None:
    companion = TimeIndex(INDEX.remote_time_index(100), 100)
    companion.verify_entries()
    assert list(companion.entries()) == [(50, 139), (60, 200)]


def test_companions_of_a_rolling_file_keep_their_order() -> None:
    """SR-33: after a leader change, copied segments overlap."""
    overlapping = (*ENTRIES, entry(180, 300, 70, 10), entry(301, 400, 5, 10))
    positioned = [(number * 80, chunk) for number, chunk in enumerate(overlapping)]
    offsets = OffsetIndex(encode_remote_offset_index(positioned, 100), 100)
    assert [position for _, position in offsets.entries()] == [0, 80, 160, 320]
    times = TimeIndex(encode_remote_time_index(overlapping, 100), 100)
    times.verify_entries()
    assert times.last_entry == (70, 300)


@pytest.mark.parametrize("position", range(len(GOLDEN)))
def test_a_changed_byte_is_noticed_wherever_it_is(position: int) -> None:
    data = bytearray(GOLDEN + GOLDEN)
    data[len(GOLDEN) + position] ^= 0x01
    entries = decode_entries(data)
    assert next(entries) == (0, ENTRIES[0])
    with pytest.raises(CorruptIndexError, match="entry at position 80"):
        next(entries)


@pytest.mark.parametrize("size", range(1, len(GOLDEN)))
def test_a_cut_entry_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError, match="entry at position 0"):
        RemoteLogIndex.parse(GOLDEN[:size])


def _sealed(body: bytes) -> bytes:
    return struct.pack(">hhI", 0, 4 + len(body), google_crc32c.value(body)) + body


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (GOLDEN_BODY[:-1], "remote data id of 34 bytes"),
        (GOLDEN_BODY[:36] + b"\x00\x00", "remote data id of 0 bytes"),
        (GOLDEN_BODY[:38] + b"\x02" + GOLDEN_BODY[39:], "version 2"),
        (GOLDEN_BODY[:39] + b"\x04" + GOLDEN_BODY[40:], "flags 0x4"),
        (GOLDEN_BODY[:40] + b"\x80" + GOLDEN_BODY[41:], "at position -"),
        (GOLDEN_BODY[:32] + bytes(4) + GOLDEN_BODY[36:], "chunk 0 is empty"),
        (b"\xff" + GOLDEN_BODY[1:], "chunk 0 holds"),
    ],
)
def test_entries_with_a_valid_crc_are_still_checked(body: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        RemoteLogIndex.parse(_sealed(body))


@pytest.mark.parametrize(
    "wrong",
    [replace(ENTRIES[1], first_offset=139), replace(ENTRIES[1], last_offset=149)],
)
def test_chunks_out_of_order_are_refused(wrong: RemoteLogIndexEntry) -> None:
    with pytest.raises(CorruptIndexError, match="chunk 1 holds"):
        RemoteLogIndex((ENTRIES[0], wrong))
