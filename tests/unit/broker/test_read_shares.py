"""What can be read remotely at once is shared out between readers (T52)."""

import random
from collections import Counter

import pytest
from aquifer_broker.tiering.read_shares import ReadShares

_MAX_READS = 100


def _fill(shares: ReadShares, reader: str, size_bytes: int = 1) -> int:
    """Takes as much as a reader gets: so many reads."""
    taken = 0
    while not shares.is_full(size_bytes) and not shares.has_its_share(reader):
        shares.take(reader, size_bytes)
        taken += 1
    return taken


def test_one_reader_alone_leaves_a_fifth_to_those_who_come() -> None:
    shares = ReadShares(max_reads=_MAX_READS, budget_bytes=1 << 30)

    assert _fill(shares, "greedy") == 80
    assert _fill(shares, "second") > 10
    assert _fill(shares, "third") > 1


def test_bytes_are_shared_out_as_reads_are() -> None:
    shares = ReadShares(max_reads=_MAX_READS, budget_bytes=50)

    assert _fill(shares, "greedy", size_bytes=5) == 8
    assert shares.reserved_bytes == 40
    assert _fill(shares, "second", size_bytes=5) >= 1


@pytest.mark.parametrize("readers", [2, 5, 10])
def test_readers_that_always_want_more_end_up_even(readers: int) -> None:
    """One has its fill before the others come; whichever read ends next, and whoever asks first, they get even."""
    shares = ReadShares(max_reads=_MAX_READS, budget_bytes=1 << 30)
    names = [f"reader {number}" for number in range(readers)]
    chance = random.Random(1)
    under_way = ["reader 0"] * _fill(shares, "reader 0")
    seen: Counter[str] = Counter()
    for step in range(5000):
        shares.give_back(under_way.pop(chance.randrange(len(under_way))), 1)
        for name in chance.sample(names, readers):
            under_way += [name] * _fill(shares, name)
        if step >= 1000:
            seen.update(under_way)

    even = seen.total() / readers
    assert all(abs(seen[name] - even) < even / 4 for name in names)


def test_who_has_nothing_gets_a_read_while_there_is_room() -> None:
    shares = ReadShares(max_reads=4, budget_bytes=100)
    for name in ("a", "b", "c"):
        shares.take(name, 1)

    assert not shares.is_full(1)
    assert not shares.has_its_share("d")


def test_a_single_read_may_be_larger_than_everything() -> None:
    shares = ReadShares(max_reads=4, budget_bytes=100)

    assert not shares.is_full(1000)
    shares.take("a", 1000)
    assert shares.is_full(1)
    shares.give_back("a", 1000)
    assert (shares.reads, shares.reserved_bytes) == (0, 0)
