"""Rolling local remote indexes of a partition on disk (SR-32, SR-33)."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_core.errors import CorruptIndexError
from aquifer_core.formats.offset_index import OffsetIndex
from aquifer_core.formats.remote_data_id import RemoteDataId
from aquifer_core.formats.remote_log_index import (
    REMOTE_LOG_INDEX_ENTRY_BYTES,
    RemoteLogIndex,
    RemoteLogIndexEntry,
)
from aquifer_core.formats.time_index import TimeIndex
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.adapters.remote_index import IndexDirectory, IndexStore
from aquifer_manager.domain.remote_index import CoveredSegment
from fixtures.manager_world import START_MS, partition

TIP = partition()
LINEAGE = (LeaderEpochEntry(0, 0),)
CHUNKS = 4
CHUNK_OFFSETS = 25
SUFFIXES = (".remoteLogIndex", ".remoteOffsetIndex", ".remoteTimeIndex", ".remoteSegments")


def segment(start: int, *, txn: bool = False) -> RemoteLogSegmentMetadata:
    """Four chunks of 25 offsets; a record's time is START_MS and its offset."""
    end = start + CHUNKS * CHUNK_OFFSETS - 1
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(TIP),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=START_MS + end,
        event_timestamp_ms=START_MS,
        segment_size_bytes=4000,
        segment_leader_epochs={0: start},
        custom_metadata=b"custom",
        txn_index_empty=not txn,
    )


def chunks(metadata: RemoteLogSegmentMetadata) -> tuple[RemoteLogIndexEntry, ...]:
    starts = range(metadata.start_offset, metadata.end_offset + 1, CHUNK_OFFSETS)
    return tuple(
        RemoteLogIndexEntry(
            first_offset=first,
            last_offset=first + CHUNK_OFFSETS - 1,
            first_timestamp_ms=START_MS + first,
            last_timestamp_ms=START_MS + first + CHUNK_OFFSETS - 1,
            data_length_bytes=1000,
            data_id=RemoteDataId(
                segment_id=metadata.segment_id.id,
                position=1000 * number,
                stored_length_bytes=1000,
                crc32c=number,
            ),
        )
        for number, first in enumerate(starts)
    )


def directory(path: Path, *, rotate_bytes: int = 1 << 20, rotate_ms: int = 10**9) -> IndexDirectory:
    return IndexDirectory.open(path, rotate_bytes=rotate_bytes, rotate_ms=rotate_ms)


def append(index: IndexDirectory, metadata: RemoteLogSegmentMetadata) -> None:
    index.append(metadata, chunks(metadata), metadata.start_offset, metadata.end_offset)


def filled(
    path: Path, count: int, *, first: int = 0, **kwargs: int
) -> tuple[IndexDirectory, list[RemoteLogSegmentMetadata]]:
    index = directory(path, **kwargs)
    index.set_lineage(LINEAGE)
    segments = [segment(first + 100 * number) for number in range(count)]
    for each in segments:
        append(index, each)
    return index, segments


def whole(metadata: RemoteLogSegmentMetadata) -> CoveredSegment:
    return CoveredSegment(metadata, metadata.start_offset, metadata.end_offset)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name != "leader-epoch-checkpoint")


def four(*bases: int) -> list[str]:
    return sorted(f"{base:020d}{suffix}" for base in bases for suffix in SUFFIXES)


def test_files_have_the_formats_of_the_stored_indexes(tmp_path: Path) -> None:
    """SR-32: the rolling files are what the bundles hold, one after the other."""
    _, segments = filled(tmp_path, 2)
    assert names(tmp_path) == four(0)
    entries = [entry for each in segments for entry in chunks(each)]
    data = (tmp_path / f"{0:020d}.remoteLogIndex").read_bytes()
    assert list(RemoteLogIndex.parse(data).entries) == entries
    offsets = OffsetIndex((tmp_path / f"{0:020d}.remoteOffsetIndex").read_bytes(), 0)
    offsets.verify_entries()
    assert [tuple(each) for each in offsets.entries()] == [
        (entry.first_offset, number * REMOTE_LOG_INDEX_ENTRY_BYTES)
        for number, entry in enumerate(entries)
    ]
    times = TimeIndex((tmp_path / f"{0:020d}.remoteTimeIndex").read_bytes(), 0)
    times.verify_entries()
    assert [tuple(each) for each in times.entries()] == [
        (entry.last_timestamp_ms, entry.last_offset) for entry in entries
    ]


@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_and_time_finds_its_segment(tmp_path: Path, reopened: bool) -> None:
    index, segments = filled(tmp_path, 5, rotate_bytes=2 * CHUNKS * REMOTE_LOG_INDEX_ENTRY_BYTES)
    assert names(tmp_path) == four(0, 200, 400)
    if reopened:
        index = directory(tmp_path)
    assert (index.start_offset, index.end_offset, index.lineage) == (0, 499, LINEAGE)
    for offset in (0, 24, 25, 99, 100, 199, 200, 350, 499):
        expected = whole(segments[offset // 100])
        assert index.find_by_offset(offset) == expected
        assert index.find_by_timestamp(START_MS + offset, 0) == expected
    assert index.find_by_offset(500) is None
    assert index.find_by_timestamp(START_MS + 500, 0) is None
    assert index.find_by_timestamp(START_MS, 130) == whole(segments[1])
    assert index.find_by_timestamp(0, 200) == whole(segments[2])


def test_files_are_rotated_by_the_time_of_their_records(tmp_path: Path) -> None:
    """SR-32: by time as well as by size; of the records, so an index built later has the same files."""
    filled(tmp_path, 5, rotate_ms=150)
    assert names(tmp_path) == four(0, 200, 400)


def test_what_is_wholly_below_the_log_start_is_deleted(tmp_path: Path) -> None:
    """SR-17: local indexes are cleaned up to the earliest offset."""
    index, segments = filled(tmp_path, 3, rotate_ms=50)
    index.clean(99)
    assert names(tmp_path) == four(0, 100, 200)
    index.clean(250)
    assert names(tmp_path) == four(200)
    assert (index.start_offset, index.end_offset) == (200, 299)
    assert index.find_by_offset(150) is None
    index.clean(300)
    assert names(tmp_path) == []
    assert (index.start_offset, index.end_offset) == (None, -1)
    append(index, segment(300))
    assert directory(tmp_path).end_offset == 399
    assert segments[2].end_offset == 299


@pytest.mark.parametrize("offset", [150, 199, 101])
def test_what_reaches_an_offset_is_cut_off(tmp_path: Path, offset: int) -> None:
    index, segments = filled(tmp_path, 3)
    index.cut(offset)
    assert index.end_offset == 99
    other = segment(100)
    append(index, other)
    for found in (index, directory(tmp_path)):
        assert found.find_by_offset(170) == whole(other)
        assert found.find_by_offset(99) == whole(segments[0])
        assert found.find_by_timestamp(START_MS + 120, 0) == whole(other)


def test_a_cut_may_take_everything(tmp_path: Path) -> None:
    index, _ = filled(tmp_path, 3, rotate_ms=50)
    index.cut(50)
    assert (index.start_offset, index.end_offset, names(tmp_path)) == (None, -1, [])


def test_segments_with_transactions_are_found(tmp_path: Path) -> None:
    index = directory(tmp_path, rotate_ms=250)
    index.set_lineage(LINEAGE)
    segments = [segment(100 * number, txn=number in {1, 4}) for number in range(6)]
    for each in segments:
        append(index, each)
    for found in (index, directory(tmp_path)):
        assert found.next_with_transactions(0) == whole(segments[1])
        assert found.next_with_transactions(199) == whole(segments[1])
        assert found.next_with_transactions(200) == whole(segments[4])
        assert found.next_with_transactions(500) is None


def test_a_segment_taken_for_a_part_of_its_offsets_says_so(tmp_path: Path) -> None:
    """After an unclean election an epoch may end within a segment; another copy may begin before what is covered."""
    index, _ = filled(tmp_path, 0)
    first, second = segment(0), segment(25)
    index.append(first, chunks(first), 0, 59)
    index.append(second, chunks(second), 60, 124)
    for found in (index, directory(tmp_path)):
        assert found.find_by_offset(59) == CoveredSegment(first, 0, 59)
        assert found.find_by_offset(60) == CoveredSegment(second, 60, 124)
        # The chunk of 50 to 74 is in both.
        assert found.find_by_timestamp(START_MS + 70, 0) == CoveredSegment(first, 0, 59)
        assert found.find_by_timestamp(START_MS + 75, 0) == CoveredSegment(second, 60, 124)
        assert not CoveredSegment(first, 0, 59).is_whole


def test_a_gap_begins_a_new_file_and_coverage_anew(tmp_path: Path) -> None:
    index, segments = filled(tmp_path, 1)
    behind = segment(500)
    append(index, behind)
    for found in (index, directory(tmp_path)):
        assert (found.start_offset, found.end_offset) == (500, 599)
        assert found.find_by_offset(50) == whole(segments[0])
        assert found.find_by_offset(250) is None
        assert found.find_by_offset(550) == whole(behind)


def cut_short(path: Path, suffix: str, base: int = 0) -> Iterable[bytes]:
    data = (path / f"{base:020d}{suffix}").read_bytes()
    return (data[:length] for length in range(len(data)))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_crash_at_any_byte_of_an_append_loses_no_segment_before_it(
    tmp_path: Path, suffix: str
) -> None:
    """Whatever is missing of the last segment, it goes as a whole, and can be appended again."""
    path = tmp_path / "whole"
    index, segments = filled(path, 2)
    before = {each: (path / f"{0:020d}{each}").read_bytes() for each in SUFFIXES}
    last = segment(200)
    append(index, last)
    order = SUFFIXES.index(suffix)
    full = (path / f"{0:020d}{suffix}").read_bytes()
    for length in range(len(before[suffix]), len(full), 7):
        crashed = tmp_path / "crashed"
        shutil.copytree(path, crashed)
        (crashed / f"{0:020d}{suffix}").write_bytes(full[:length])
        for later in SUFFIXES[order + 1 :]:
            (crashed / f"{0:020d}{later}").write_bytes(before[later])
        again = directory(crashed)
        assert again.end_offset == 199
        assert again.find_by_offset(150) == whole(segments[1])
        append(again, last)
        assert names(crashed) == four(0)
        for each in SUFFIXES:
            name = f"{0:020d}{each}"
            assert (crashed / name).read_bytes() == (path / name).read_bytes()
        shutil.rmtree(crashed)


def opened_and_searched(path: Path) -> CoveredSegment | None:
    return directory(path).find_by_timestamp(START_MS + 30, 0)


def test_a_file_of_which_nothing_is_left_costs_no_other(tmp_path: Path) -> None:
    """A crash within the first record of a file that was just rolled."""
    _, segments = filled(tmp_path, 3, rotate_ms=150)
    path = tmp_path / f"{200:020d}.remoteSegments"
    path.write_bytes(path.read_bytes()[:50])
    index = directory(tmp_path)
    assert (index.start_offset, index.end_offset) == (0, 199)
    append(index, segments[2])
    assert directory(tmp_path).find_by_offset(250) == whole(segments[2])


def test_a_segment_may_be_taken_for_a_hole_at_its_end_alone(tmp_path: Path) -> None:
    index, segments = filled(tmp_path, 1)
    held = replace(segment(50), end_offset=220)
    index.append(held, chunks(segment(50)), 150, 220)
    append(index, segment(221))
    for found in (index, directory(tmp_path, rotate_ms=50)):
        assert found.find_by_offset(200) == CoveredSegment(held, 150, 220)
        assert found.find_by_offset(50) == whole(segments[0])
    index.cut(221)
    assert directory(tmp_path).find_by_offset(200) == CoveredSegment(held, 150, 220)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_noticed(tmp_path: Path, suffix: str) -> None:
    filled(tmp_path, 4, rotate_ms=150)
    (tmp_path / f"{0:020d}{suffix}").unlink()
    if suffix == ".remoteSegments":
        # Without it the others do not count; what they covered is a gap at the beginning.
        assert directory(tmp_path).start_offset == 200
        return
    with pytest.raises(CorruptIndexError, match="missing"):
        opened_and_searched(tmp_path)


@pytest.mark.parametrize("suffix", [".remoteLogIndex", ".remoteSegments"])
def test_a_flipped_bit_is_noticed_when_it_is_read(tmp_path: Path, suffix: str) -> None:
    filled(tmp_path, 4, rotate_ms=150)
    path = tmp_path / f"{0:020d}{suffix}"
    data = bytearray(path.read_bytes())
    data[110] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError):
        opened_and_searched(tmp_path)


def test_managers_that_share_a_directory_have_places_of_their_own(tmp_path: Path) -> None:
    """Replicas on one volume would write into each other's files; after a restart each finds one that is there."""

    def store() -> IndexStore:
        return IndexStore(tmp_path, rotate_bytes=1 << 20, rotate_ms=10**9)

    with store() as one, store() as other:
        for each in (one, other):
            index = each.open(TIP)
            index.set_lineage(LINEAGE)
            append(index, segment(0))
            append(index, segment(100))
    with store() as again:
        assert again.open(TIP).end_offset == 199
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == [
        "remote-log-index",
        "remote-log-index-1",
    ]


def test_a_store_deletes_what_is_damaged_and_what_nobody_uses(tmp_path: Path) -> None:
    store = IndexStore(tmp_path, rotate_bytes=1 << 20, rotate_ms=150)
    other = partition("other")
    for tip in (TIP, other):
        index = store.open(tip)
        index.set_lineage(LINEAGE)
        for start in (0, 100, 200):
            append(index, segment(start))
    assert store.open(TIP).end_offset == 299
    [path] = (tmp_path / "remote-log-index").glob(f"{TIP.topic_id}-{TIP.partition}")
    (path / f"{0:020d}.remoteLogIndex").unlink()
    assert store.open(TIP).end_offset == -1
    assert not path.exists()
    assert store.delete_unused([other], 0.0) == 0
    assert store.delete_unused([], 3600.0) == 0
    assert store.delete_unused([], -1.0) == 1
    assert store.open(other).end_offset == -1
