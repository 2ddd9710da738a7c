"""Leader epoch cache and lineage, with the reference's vectors (K-3.2, K-3.4, K-6.4)."""

import pytest
from aquifer_core.leader_epoch import (
    LeaderEpochCache,
    LeaderEpochEntry,
    bound_highest_remote_offset,
    build_filtered_leader_epoch_map,
    find_highest_remote_offset,
    is_segment_within_leader_epochs,
)


def cache_of(epochs: dict[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(LeaderEpochEntry(*item) for item in epochs.items())


@pytest.mark.parametrize(
    ("epoch", "offset", "changed", "expected"),
    [
        (3, 30, True, {0: 0, 1: 10, 2: 20, 3: 30}),
        (2, 20, False, {0: 0, 1: 10, 2: 20}),
        (2, 25, False, {0: 0, 1: 10, 2: 20}),
        (2, 15, True, {0: 0, 1: 10, 2: 15}),
        (3, 20, True, {0: 0, 1: 10, 3: 20}),
        (3, 5, True, {0: 0, 3: 5}),
        (3, 0, True, {3: 0}),
        (1, 40, True, {0: 0, 1: 40}),
    ],
)
def test_assigning_removes_what_contradicts_the_new_entry(
    epoch: int, offset: int, changed: bool, expected: dict[int, int]
) -> None:
    cache = cache_of({0: 0, 1: 10, 2: 20})
    assert cache.assign(epoch, offset) is changed
    assert cache.as_map() == expected
    assert cache.assign(epoch, offset) is False


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="invalid leader epoch entry"):
        LeaderEpochCache().assign(*entry)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, {2: 6, 3: 8, 4: 11}),
        (5, {2: 6, 3: 8, 4: 11}),
        (6, {2: 6, 3: 8, 4: 11}),
        (7, {2: 7, 3: 8, 4: 11}),
        (8, {3: 8, 4: 11}),
        (10, {3: 10, 4: 11}),
        (11, {4: 11}),
        (100, {4: 100}),
    ],
)
def test_truncating_from_the_start_moves_the_entry_that_covers_the_offset(
    offset: int, expected: dict[int, int]
) -> None:
    cache = cache_of({2: 6, 3: 8, 4: 11})
    changed = cache.truncate_from_start(offset)
    assert cache.as_map() == expected
    assert changed is (expected != {2: 6, 3: 8, 4: 11})
    assert cache.truncate_from_start(offset) is False


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (12, {2: 6, 3: 8, 4: 11}),
        (11, {2: 6, 3: 8}),
        (9, {2: 6, 3: 8}),
        (8, {2: 6}),
        (6, {}),
        (0, {}),
    ],
)
def test_truncating_from_the_end_drops_epochs_that_start_there(
    offset: int, expected: dict[int, int]
) -> None:
    cache = cache_of({2: 6, 3: 8, 4: 11})
    changed = cache.truncate_from_end(offset)
    assert cache.as_map() == expected
    assert changed is (len(expected) < 3)
    assert cache.truncate_from_end(offset) is False


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 6)),
        (2, (2, 8)),
        (3, (2, 8)),
        (4, (4, 11)),
        (6, (4, 11)),
        (7, (7, 50)),
        (8, (-1, -1)),
    ],
)
def test_end_offset_of_an_epoch_is_the_start_of_the_next(
    epoch: int, expected: tuple[int, int]
) -> None:
    assert cache_of({2: 6, 4: 8, 7: 11}).end_offset_for(epoch, 50) == expected


def test_an_empty_cache_knows_nothing() -> None:
    cache = LeaderEpochCache()
    assert cache.end_offset_for(0, 50) == (-1, -1)
    assert cache.epoch_for_offset(0) is None
    assert (cache.earliest, cache.latest, cache.entries, len(cache)) == (None, None, (), 0)
    assert cache.truncate_from_start(5) is False
    assert cache.truncate_from_end(5) is False


@pytest.mark.parametrize(
    ("offset", "epoch"), [(5, None), (6, 2), (7, 2), (8, 4), (10, 4), (11, 7), (1 << 40, 7)]
)
def test_epoch_of_an_offset_is_the_last_that_starts_at_or_below(
    offset: int, epoch: int | None
) -> None:
    assert cache_of({2: 6, 4: 8, 7: 11}).epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (-1, 120, {0: 0, 1: 50, 2: 100}),
        (-1, 100, {0: 0, 1: 50}),
        (20, 60, {0: 20, 1: 50}),
        (50, 100, {1: 50}),
        (99, 101, {1: 99, 2: 100}),
        (150, 200, {2: 150}),
    ],
)
def test_entries_in_a_range_start_at_the_range(
    start: int, end: int, expected: dict[int, int]
) -> None:
    """K-3.2: segmentLeaderEpochs, and with -1 the checkpoint copied along."""
    cache = cache_of({0: 0, 1: 50, 2: 100})
    entries = cache.entries_in_range(start, end)
    assert {entry.epoch: entry.start_offset for entry in entries} == expected
    assert cache.as_map() == {0: 0, 1: 50, 2: 100}


def test_clearing_forgets_everything() -> None:
    cache = cache_of({2: 6})
    assert (cache.earliest, cache.latest) == (LeaderEpochEntry(2, 6), LeaderEpochEntry(2, 6))
    assert repr(cache) == "LeaderEpochCache(2@6)"
    cache.clear()
    assert cache.entries == ()


def test_epochs_without_records_are_filtered_out() -> None:
    """K-3.4's vector."""
    epochs = {0: 0, 1: 0, 2: 0, 3: 30, 4: 40, 5: 60, 6: 60, 7: 70, 8: 70}
    filtered = build_filtered_leader_epoch_map(epochs)
    assert filtered == {2: 0, 3: 30, 4: 40, 6: 60, 8: 70}
    assert build_filtered_leader_epoch_map(filtered) == filtered
    assert build_filtered_leader_epoch_map({}) == {}
    assert list(build_filtered_leader_epoch_map({3: 30, 1: 10})) == [1, 3]


def test_highest_remote_offset_is_bounded_by_the_truncated_epoch() -> None:
    """K-3.2's vector."""
    cache = cache_of({0: 0, 1: 150, 2: 300})
    assert find_highest_remote_offset(cache, 500, {0: 200}) == 149
    assert find_highest_remote_offset(cache, 500, {0: 200}.get) == 149
    assert find_highest_remote_offset(cache, 500, {0: 149, 1: 299}) == 299
    assert find_highest_remote_offset(cache, 500, {2: 499}) == 499
    assert find_highest_remote_offset(cache, 500, {2: 500}) == 499
    assert find_highest_remote_offset(cache, 500, {7: 20}) == -1
    assert find_highest_remote_offset(cache, 500, {}) == -1
    assert bound_highest_remote_offset(cache, 1, 100, 500) == 100
    assert bound_highest_remote_offset(cache_of({0: 0, 1: 0}), 0, 7, 0) == -1


LINEAGE = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}


@pytest.mark.parametrize(
    ("end_offset", "epochs", "expected"),
    [
        (35, {1: 15, 2: 20, 3: 30}, True),
        (19, {1: 15}, True),
        (5, {0: 0}, True),
        (75, {7: 70}, True),
        (29, {1: 15, 2: 20}, True),
        (85, {5: 55, 6: 60, 7: 70}, False),
        (45, {1: 15, 2: 20, 4: 40}, False),
        (35, {1: 15, 2: 20}, False),
        (25, {1: 5, 2: 20}, False),
        (89, {7: 70}, True),
        (90, {7: 70}, False),
        (95, {7: 70}, False),
    ],
)
def test_segments_of_the_lineage_are_told_from_others(
    end_offset: int, epochs: dict[int, int], expected: bool
) -> None:
    """SR-17, K-3.4: the in-lineage vectors."""
    assert (
        is_segment_within_leader_epochs(
            segment_leader_epochs=epochs, end_offset=end_offset, log_end_offset=90, lineage=LINEAGE
        )
        is expected
    )


@pytest.mark.parametrize(
    ("end_offset", "epochs", "expected"),
    [
        (150, {5: 14, 7: 15, 9: 100}, True),
        (7, {2: 5, 3: 6}, False),
        (250, {7: 15, 9: 100, 10: 200}, False),
        (150, {8: 75}, False),
        (150, {7: 15, 9: 101}, False),
        (150, {9: 99}, False),
    ],
)
def test_overlapping_segments_reach_below_the_raised_lineage(
    end_offset: int, epochs: dict[int, int], expected: bool
) -> None:
    """SR-17, K-3.4: the overlap vectors."""
    assert (
        is_segment_within_leader_epochs(
            segment_leader_epochs=epochs,
            end_offset=end_offset,
            log_end_offset=210,
            lineage={7: 51, 9: 100},
        )
        is expected
    )


def test_epochs_without_records_in_a_segment_do_not_matter() -> None:
    assert is_segment_within_leader_epochs(
        segment_leader_epochs={5: 55, 6: 70, 7: 70},
        end_offset=75,
        log_end_offset=90,
        lineage=LINEAGE,
    )


def test_nothing_is_within_an_empty_lineage() -> None:
    for segment, lineage in (({0: 0}, {}), ({}, {0: 0})):
        assert not is_segment_within_leader_epochs(
            segment_leader_epochs=segment, end_offset=1, log_end_offset=9, lineage=lineage
        )
