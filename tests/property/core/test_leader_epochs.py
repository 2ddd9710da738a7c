"""Laws of leader epoch caches and hashes."""

from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs, parse_leader_epochs
from aquifer_core.java_hash import floor_mod, java_string_hash, metadata_partition, murmur2
from aquifer_core.leader_epoch import (
    LeaderEpochCache,
    build_filtered_leader_epoch_map,
    find_highest_remote_offset,
    is_segment_within_leader_epochs,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

EPOCHS = st.integers(0, 12)
OFFSETS = st.integers(0, 60)


class CacheAgainstOffsets(RuleBasedStateMachine):
    """Compares the cache with a list that names the epoch of every single offset."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = LeaderEpochCache()
        self.start = 0
        self.epochs: list[int] = []  # of offsets start, start + 1, ...

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @rule(epochs=st.integers(0, 2), records=st.integers(1, 8))
    def append(self, epochs: int, records: int) -> None:
        latest = self.epochs[-1] if self.epochs else 0
        self.cache.assign(latest + epochs, self.end)
        self.epochs += [latest + epochs] * records

    @rule(share=st.floats(0, 1))
    def delete_from_start(self, share: float) -> None:
        count = int(share * max(len(self.epochs) - 1, 0))
        self.start += count
        del self.epochs[:count]
        self.cache.truncate_from_start(self.start)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        keep = int(share * len(self.epochs))
        self.cache.truncate_from_end(self.start + keep)
        del self.epochs[keep:]

    @invariant()
    def every_offset_has_its_epoch(self) -> None:
        for offset in range(self.start, self.end):
            assert self.cache.epoch_for_offset(offset) == self.epochs[offset - self.start]

    @invariant()
    def every_epoch_ends_where_the_next_one_starts(self) -> None:
        for epoch in set(self.epochs):
            last = max(i for i, held in enumerate(self.epochs) if held == epoch)
            assert self.cache.end_offset_for(epoch, self.end) == (epoch, self.start + last + 1)

    @invariant()
    def ranges_hold_exactly_their_epochs(self) -> None:
        middle = len(self.epochs) // 2
        entries = self.cache.entries_in_range(self.start + middle, self.end)
        expected: dict[int, int] = {}
        for offset, epoch in enumerate(self.epochs[middle:], start=self.start + middle):
            expected.setdefault(epoch, offset)
        assert {entry.epoch: entry.start_offset for entry in entries} == expected

    @invariant()
    def what_was_copied_is_in_the_lineage(self) -> None:
        if len(self.epochs) < 2:
            return
        last = self.end - 2
        entries = self.cache.entries_in_range(self.start, last + 1)
        assert is_segment_within_leader_epochs(
            segment_leader_epochs={entry.epoch: entry.start_offset for entry in entries},
            end_offset=last,
            log_end_offset=self.end,
            lineage=build_filtered_leader_epoch_map(self.cache.as_map()),
        )

    @invariant()
    def the_checkpoint_keeps_everything(self) -> None:
        text = format_leader_epochs(self.cache.entries)
        assert LeaderEpochCache(parse_leader_epochs(text)).entries == self.cache.entries


TestCacheAgainstOffsets = CacheAgainstOffsets.TestCase


@given(st.lists(st.tuples(EPOCHS, OFFSETS), max_size=12))
def test_entries_always_increase_strictly(assignments: list[tuple[int, int]]) -> None:
    cache = LeaderEpochCache()
    for epoch, offset in assignments:
        before = cache.entries
        changed = cache.assign(epoch, offset)
        assert changed is (cache.entries != before)
        for lower, higher in zip(cache.entries, cache.entries[1:], strict=False):
            assert lower.epoch < higher.epoch
            assert lower.start_offset < higher.start_offset


@given(
    st.lists(st.tuples(EPOCHS, OFFSETS), max_size=6),
    st.dictionaries(EPOCHS, OFFSETS),
    st.integers(0, 80),
)
def test_highest_remote_offset_is_in_the_log(
    assignments: list[tuple[int, int]], highest: dict[int, int], length: int
) -> None:
    cache = LeaderEpochCache()
    for epoch, offset in assignments:
        cache.assign(epoch, offset)
    log_end_offset = (cache.latest.start_offset if cache.latest else 0) + length
    found = find_highest_remote_offset(cache, log_end_offset, highest)
    assert -1 <= found < max(log_end_offset, 1)
    assert found <= max(highest.values(), default=-1)


@given(st.dictionaries(EPOCHS, OFFSETS), st.dictionaries(EPOCHS, OFFSETS), OFFSETS, OFFSETS)
def test_any_lineage_question_has_an_answer(
    segment: dict[int, int], leader: dict[int, int], end_offset: int, log_end_offset: int
) -> None:
    lineage = build_filtered_leader_epoch_map(leader)
    within = is_segment_within_leader_epochs(
        segment_leader_epochs=segment,
        end_offset=end_offset,
        log_end_offset=log_end_offset,
        lineage=lineage,
    )
    assert not within or (segment and lineage and end_offset < log_end_offset)


@given(st.text(), st.text(), st.integers(1, 1000))
def test_string_hash_concatenates_as_in_java(left: str, right: str, partitions: int) -> None:
    units = len(right.encode("utf-16-be", "surrogatepass")) // 2
    whole = java_string_hash(left) * pow(31, units, 1 << 32) + java_string_hash(right)
    assert (java_string_hash(left + right) - whole) % (1 << 32) == 0
    assert 0 <= metadata_partition(left, 3, partitions) < partitions


@given(st.binary(), st.integers(1, 1000))
def test_murmur2_is_a_signed_32_bit_number(data: bytes, partitions: int) -> None:
    assert -(2**31) <= murmur2(data) < 2**31
    assert 0 <= floor_mod(murmur2(data), partitions) < partitions
