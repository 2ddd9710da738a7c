"""Offset, time and transaction indexes on golden bytes (K-6.3, K-3.8)."""

import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats import offset_index, time_index, transaction_index
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.formats.transaction_index import AbortedTransaction, collect_aborted

BASE = 1 << 33
OFFSET_BYTES = bytes.fromhex("0000000900001000" "0000001300002010" "0000006300003fff")  # fmt: skip
OFFSET_ENTRIES = [(BASE + 9, 4096), (BASE + 19, 8208), (BASE + 99, 16383)]
TIME_BYTES = bytes.fromhex(
    "0000018bcfe5680000000009" "0000018bcfe5680500000013" "0000018bcfe5700000000063"
)  # fmt: skip
T = 1700000000000
TIME_ENTRIES = [(T, BASE + 9), (T + 5, BASE + 19), (T + 2048, BASE + 99)]


def test_offset_entries_are_read_and_written_as_kafka_lays_them_out() -> None:
    index = OffsetIndex(OFFSET_BYTES, BASE)
    assert list(index.entries()) == OFFSET_ENTRIES
    assert len(index) == 3
    assert index.last_entry == OFFSET_ENTRIES[-1]
    encoded = [offset_index.encode_entry(offset - BASE, pos) for offset, pos in OFFSET_ENTRIES]
    assert b"".join(encoded) == OFFSET_BYTES
    index.sanity_check()
    index.verify_entries()


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (BASE - 5, (BASE, 0)),
        (BASE, (BASE, 0)),
        (BASE + 8, (BASE, 0)),
        (BASE + 9, OFFSET_ENTRIES[0]),
        (BASE + 18, OFFSET_ENTRIES[0]),
        (BASE + 19, OFFSET_ENTRIES[1]),
        (BASE + 99, OFFSET_ENTRIES[2]),
        (1 << 62, OFFSET_ENTRIES[2]),
    ],
)
def test_offset_lookup_is_the_floor(offset: int, expected: tuple[int, int]) -> None:
    assert OffsetIndex(memoryview(OFFSET_BYTES), BASE).lookup(offset) == expected


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, 1, BASE + 9),
        (0, 4096, BASE + 9),
        (0, 4097, BASE + 19),
        (4096, 4112, BASE + 19),
        (8208, 8175, BASE + 99),
        (8208, 8176, None),
    ],
)
def test_upper_bound_is_the_first_entry_at_or_past_the_end(
    start: int, size: int, expected: int | None
) -> None:
    """K-3.8."""
    assert OffsetIndex(OFFSET_BYTES, BASE).fetch_upper_bound_offset(start, size) == expected


@pytest.mark.parametrize(
    ("offset", "entries"), [(BASE, 0), (BASE + 9, 0), (BASE + 10, 1), (BASE + 99, 2), (1 << 62, 3)]
)
def test_truncation_keeps_entries_below_the_offset(offset: int, entries: int) -> None:
    assert OffsetIndex(OFFSET_BYTES, BASE).truncated_size_bytes(offset) == entries * 8
    assert TimeIndex(TIME_BYTES, BASE).truncated_size_bytes(offset) == entries * 12


def test_empty_indexes_answer_with_the_base() -> None:
    offsets, times = OffsetIndex(b"", BASE), TimeIndex(b"", BASE)
    assert offsets.last_entry == offsets.lookup(BASE + 5) == (BASE, 0)
    assert times.last_entry == times.lookup(T) == (-1, BASE)
    assert offsets.fetch_upper_bound_offset(0, 1) is None
    offsets.verify_entries()
    times.verify_entries()
    with pytest.raises(IndexError):
        offsets[0]
    with pytest.raises(IndexError):
        times[-1]


def test_time_entries_are_read_and_written_as_kafka_lays_them_out() -> None:
    index = TimeIndex(TIME_BYTES, BASE)
    assert list(index.entries()) == TIME_ENTRIES
    assert index.last_entry == TIME_ENTRIES[-1]
    assert b"".join(time_index.encode_entry(t, o - BASE) for t, o in TIME_ENTRIES) == TIME_BYTES
    index.sanity_check()
    index.verify_entries()


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (-1, (-1, BASE)),
        (T - 1, (-1, BASE)),
        (T, TIME_ENTRIES[0]),
        (T + 4, TIME_ENTRIES[0]),
        (T + 5, TIME_ENTRIES[1]),
        (T + 9999, TIME_ENTRIES[2]),
    ],
)
def test_time_lookup_is_the_floor(timestamp_ms: int, expected: tuple[int, int]) -> None:
    assert TimeIndex(TIME_BYTES, BASE).lookup(timestamp_ms) == expected


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (OFFSET_BYTES[:-1], "not a multiple of 8"),
        (OFFSET_BYTES[:16] + b"\xff" * 8, "below base offset"),
    ],
)
def test_sanity_check_of_an_offset_index_names_what_is_wrong(data: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        OffsetIndex(data, BASE).sanity_check()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (TIME_BYTES + b"\x00", "not a multiple of 12"),
        (TIME_BYTES + bytes(12), "last timestamp 0 is below the first"),
        (TIME_BYTES[:-4] + b"\xff" * 4, "below base offset"),
    ],
)
def test_sanity_check_of_a_time_index_names_what_is_wrong(data: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        TimeIndex(data, BASE).sanity_check()


def test_verification_names_the_entry_out_of_order() -> None:
    with pytest.raises(CorruptIndexError, match="entry 1"):
        OffsetIndex(OFFSET_BYTES[8:16] + OFFSET_BYTES[:8], BASE).verify_entries()
    with pytest.raises(CorruptIndexError, match="entry 3"):
        OffsetIndex(OFFSET_BYTES + bytes(8), BASE).verify_entries()
    with pytest.raises(CorruptIndexError, match="entry 2"):
        TimeIndex(TIME_BYTES[:24] + TIME_BYTES[12:24], BASE).verify_entries()


@pytest.mark.parametrize("numbers", [(-1, 0), (1 << 31, 0), (0, -1), (0, 1 << 31)])
def test_offset_entries_out_of_range_are_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        offset_index.encode_entry(*numbers)


@pytest.mark.parametrize("numbers", [(-1, 0), (1 << 63, 0), (0, -1), (0, 1 << 31)])
def test_time_entries_out_of_range_are_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        time_index.encode_entry(*numbers)


def _aborted(producer: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=producer, first_offset=first, last_offset=last, last_stable_offset=stable
    )


ABORTED = [_aborted(1, 0, 10, 11), _aborted(2, 5, 20, 15), _aborted(3, 18, 40, 41)]


def test_aborted_transactions_round_trip_through_golden_bytes() -> None:
    encoded = transaction_index.encode_entry(_aborted(1, 2, 3, 4))
    assert encoded.hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))
    data = b"".join(map(transaction_index.encode_entry, ABORTED))
    assert list(transaction_index.decode_entries(data)) == ABORTED
    transaction_index.sanity_check(data, 10)


@pytest.mark.parametrize(
    ("data", "base", "what"),
    [
        (bytes(33), 0, "not a multiple of 34"),
        (b"\x00\x01" + bytes(32), 0, "entry 0 has version 1"),
        (transaction_index.encode_entry(ABORTED[0]), 11, "entry 0 ends at 10"),
    ],
)
def test_sanity_check_of_a_transaction_index_names_what_is_wrong(
    data: bytes, base: int, what: str
) -> None:
    with pytest.raises(CorruptIndexError, match=what):
        transaction_index.sanity_check(data, base)


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "complete"),
    [
        (0, 5, [0], True),
        (0, 11, [0], True),
        (0, 12, [0, 1], True),
        (11, 15, [1], True),
        (11, 16, [1], True),
        (11, 19, [1, 2], True),
        (21, 42, [2], False),
        (41, 60, [], False),
    ],
)
def test_aborted_transactions_are_collected_up_to_the_bound(
    fetch_offset: int, upper_bound: int, expected: list[int], complete: bool
) -> None:
    """K-3.8: an entry that overlaps the range counts; a large enough LSO ends the search."""
    collected = collect_aborted(ABORTED, fetch_offset, upper_bound)
    assert collected == ([ABORTED[number] for number in expected], complete)
