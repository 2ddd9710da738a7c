"""Indexes, checkpoints and snapshots round trip, and garbage is refused cleanly."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate

import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats import offset_index, time_index, transaction_index
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs, parse_leader_epochs
from aquifer_core.formats.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from aquifer_core.formats.offset_checkpoint import format_offsets, parse_offsets
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.partition_metadata import parse_partition_metadata
from aquifer_core.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import RemoteLogIndex, RemoteLogIndexEntry
from aquifer_core.formats.segment_files import parse_base_offset, parse_partition_directory
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.formats.transaction_index import AbortedTransaction, collect_aborted
from aquifer_core.ids import KafkaUuid
from aquifer_core.leader_epoch import LeaderEpochEntry
from hypothesis import given
from hypothesis import strategies as st

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE_INT32 = st.integers(0, 2**31 - 1)
POSITIVE_INT64 = st.integers(0, 2**63 - 1)
UUIDS = st.binary(min_size=16, max_size=16).map(KafkaUuid)

PARSERS: list[Callable[[Buffer], object]] = [
    parse_leader_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_meta_properties,
    decode_snapshot,
    RemoteDataId.decode,
    lambda data: RemoteLogIndex.parse(data).entries,
    lambda data: transaction_index.sanity_check(data, 0),
    lambda data: OffsetIndex(data, 5).verify_entries(),
    lambda data: TimeIndex(data, 5).verify_entries(),
]


@pytest.mark.parametrize("parse", PARSERS)
@given(
    garbage=st.binary(max_size=200)
    | st.text(alphabet="0123456789 \n-ab=:\\.#", max_size=60).map(str.encode)
)
def test_garbage_is_accepted_or_refused_as_corrupt(
    parse: Callable[[Buffer], object], garbage: bytes
) -> None:
    def outcome(data: Buffer) -> object:
        try:
            return parse(data)
        except CorruptIndexError as error:
            return str(error)

    assert outcome(garbage) == outcome(bytearray(garbage)) == outcome(memoryview(garbage))


@given(st.lists(st.tuples(POSITIVE_INT32, POSITIVE_INT32), unique=True), POSITIVE_INT64, INT64)
def test_offset_index_agrees_with_a_sorted_list(
    pairs: list[tuple[int, int]], base: int, target: int
) -> None:
    relative = sorted({offset for offset, _ in pairs})
    positions = sorted({position for _, position in pairs})
    entries = list(zip(relative, positions, strict=False))
    index = OffsetIndex(b"".join(offset_index.encode_entry(*entry) for entry in entries), base)
    index.verify_entries()
    absolute = [(base + offset, position) for offset, position in entries]
    assert list(index.entries()) == absolute
    for offset in (target, base, base + target % 2**31, *(entry[0] for entry in absolute)):
        below = bisect_right([entry[0] for entry in absolute], offset)
        assert index.lookup(offset) == (absolute[below - 1] if below else (base, 0))
        kept = bisect_left([entry[0] for entry in absolute], offset)
        assert index.truncated_size_bytes(offset) == 8 * kept
    start = target % 2**31
    at_or_past = [offset for offset, position in absolute if position >= start + 10]
    assert index.fetch_upper_bound_offset(start, 10) == next(iter(at_or_past), None)


@given(st.lists(st.tuples(POSITIVE_INT64, POSITIVE_INT32)), POSITIVE_INT64, INT64)
def test_time_index_agrees_with_a_sorted_list(
    pairs: list[tuple[int, int]], base: int, target: int
) -> None:
    times = sorted({timestamp_ms for timestamp_ms, _ in pairs})
    relative = sorted({offset for _, offset in pairs})
    entries = list(zip(times, relative, strict=False))
    index = TimeIndex(b"".join(time_index.encode_entry(*entry) for entry in entries), base)
    index.verify_entries()
    absolute = [(timestamp_ms, base + offset) for timestamp_ms, offset in entries]
    assert list(index.entries()) == absolute
    for timestamp_ms in (target, *times):
        below = bisect_right(times[: len(absolute)], timestamp_ms)
        assert index.lookup(timestamp_ms) == (absolute[below - 1] if below else (-1, base))


@given(st.binary(max_size=100), INT64, INT64)
def test_lookups_in_garbage_stay_inside_it(garbage: bytes, base: int, target: int) -> None:
    offsets, times = OffsetIndex(garbage, base), TimeIndex(garbage, base)
    assert offsets.lookup(target) in [(base, 0), *offsets.entries()]
    assert times.lookup(target) in [(-1, base), *times.entries()]
    assert 0 <= offsets.truncated_size_bytes(target) <= len(garbage)
    assert 0 <= times.truncated_size_bytes(target) <= len(garbage)
    bound = offsets.fetch_upper_bound_offset(target, 1)
    assert bound is None or bound in [entry.offset for entry in offsets.entries()]


@given(
    st.lists(
        st.builds(
            AbortedTransaction,
            producer_id=INT64,
            first_offset=INT64,
            last_offset=INT64,
            last_stable_offset=INT64,
        ),
        max_size=8,
    ),
    INT64,
    INT64,
)
def test_aborted_transactions_round_trip(
    entries: list[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> None:
    data = b"".join(map(transaction_index.encode_entry, entries))
    assert list(transaction_index.decode_entries(data)) == entries
    chosen, complete = collect_aborted(iter(entries), fetch_offset, upper_bound)
    assert complete is any(entry.last_stable_offset >= upper_bound for entry in entries)
    assert all(
        entry.last_offset >= fetch_offset and entry.first_offset < upper_bound for entry in chosen
    )


@given(st.lists(st.builds(LeaderEpochEntry, POSITIVE_INT32, POSITIVE_INT64), max_size=8))
def test_leader_epoch_checkpoints_round_trip(entries: list[LeaderEpochEntry]) -> None:
    assert parse_leader_epochs(format_leader_epochs(entries)) == tuple(entries)


TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


@given(st.dictionaries(st.tuples(TOPICS, POSITIVE_INT32), INT64, max_size=8))
def test_offset_checkpoints_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets


@given(
    st.builds(
        MetaProperties,
        cluster_id=st.from_regex(r"[!-~]{1,22}", fullmatch=True),
        node_id=INT32,
        directory_id=st.none() | UUIDS,
    )
)
def test_meta_properties_round_trip(meta: MetaProperties) -> None:
    assert parse_meta_properties(format_meta_properties(meta)) == meta


SNAPSHOT_ENTRIES = st.builds(
    ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64
)


@given(st.lists(SNAPSHOT_ENTRIES, max_size=8))
def test_producer_snapshots_round_trip(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


DATA_IDS = st.builds(
    RemoteDataId,
    segment_id=UUIDS,
    position=POSITIVE_INT64,
    stored_length_bytes=POSITIVE_INT32,
    crc32c=st.integers(0, 2**32 - 1),
    is_compressed=st.booleans(),
    is_encrypted=st.booleans(),
)


@st.composite
def chunk_tables(draw: st.DrawFn) -> list[RemoteLogIndexEntry]:
    entries = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 8))):
        first = offset + draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 50))
        entries.append(
            RemoteLogIndexEntry(
                first_offset=first,
                last_offset=last,
                first_timestamp_ms=draw(st.integers(-1, 100)),
                last_timestamp_ms=draw(st.integers(-1, 100)),
                data_length_bytes=draw(st.integers(1, 100)),
                data_id=draw(DATA_IDS),
            )
        )
        offset = last + 1
    return entries


@given(chunk_tables(), st.integers(-2, 120), st.integers(0, 900), st.integers(0, 300))
def test_chunk_searches_agree_with_a_walk_over_the_table(
    entries: list[RemoteLogIndexEntry], timestamp_ms: int, position: int, length: int
) -> None:
    index = RemoteLogIndex.parse(RemoteLogIndex(entries).encode())
    assert index.entries == tuple(entries)
    numbered = list(enumerate(entries))
    ends = list(accumulate(entry.data_length_bytes for entry in entries))
    assert index.data_size_bytes == (ends[-1] if ends else 0)
    for offset in {
        edge for entry in entries for edge in (entry.first_offset - 1, entry.last_offset)
    }:
        expected = next(n for n, entry in numbered if entry.last_offset >= offset)
        assert index.find_by_offset(offset) == expected
    assert index.find_by_timestamp(timestamp_ms) == next(
        (n for n, entry in numbered if entry.last_timestamp_ms >= timestamp_ms), None
    )
    assert index.find_by_position(position) == next(
        (n for n, end in enumerate(ends) if position < end), None
    )
    touched = [
        n
        for n, end in enumerate(ends)
        if end > position and index.start_position(n) <= position + length
    ]
    assert list(index.chunks_between(position, position + length)) == touched


@given(chunk_tables())
def test_companions_lead_to_the_chunk(entries: list[RemoteLogIndexEntry]) -> None:
    index = RemoteLogIndex(entries)
    start = entries[0].first_offset if entries else 0
    offsets = OffsetIndex(index.remote_offset_index(start), start)
    times = TimeIndex(index.remote_time_index(start), start)
    offsets.verify_entries()
    times.verify_entries()
    assert len(offsets) == len(entries)
    for number, entry in enumerate(entries):
        for offset in (entry.first_offset, entry.last_offset):
            assert offsets.lookup(offset).position == number * 80
        found = index.find_by_timestamp(entry.last_timestamp_ms)
        assert found is not None
        floor = times.lookup(entry.last_timestamp_ms - 1)
        assert floor.offset <= entries[found].last_offset


@given(st.text(max_size=40))
def test_any_file_name_is_judged(name: str) -> None:
    offset = parse_base_offset(name)
    assert offset is None or name.startswith(f"{offset:020d}.")
    parsed = parse_partition_directory(name)
    assert parsed is None or (name.startswith(f"{parsed[0]}-") and parsed[1] >= 0)
