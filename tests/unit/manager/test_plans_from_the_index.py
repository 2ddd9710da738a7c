"""Plans of readers that read on are made from the local remote index, as metadata would make them (SR-19, SR-33)."""

from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.domain.fetch_plan import FetchPlan, FetchRequest
from fixtures.manager_fetches import TIP, Reads, aborted, committed, request
from fixtures.manager_segments import batch

LINEAGE = (LeaderEpochEntry(0, 0), LeaderEpochEntry(2, 30))
SEGMENTS = 6
END = 10 * SEGMENTS


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    return Reads(index_directory=tmp_path)


async def put(reads: Reads, number: int, *, transaction: bool = False) -> RemoteLogSegmentMetadata:
    """Ten records; those from 30 on are of another leader epoch."""
    base = 10 * number
    epoch = 0 if base < 30 else 2
    return await reads.put(
        *(batch(base + n, epoch=epoch) for n in range(10)),
        epochs={epoch: base},
        aborted=[aborted(base, base + 5, base + 6)] if transaction else [],
    )


async def indexed(reads: Reads, until: int = END) -> None:
    reads.indexes.should_reach(TIP, LINEAGE, 0, until - 1)
    await reads.indexes.update()
    assert reads.indexes.behind == 0


def asked(reads: Reads) -> int:
    return reads.metadata.run_lookups + reads.metadata.lookups + reads.metadata.txn_lookups


async def plan(reads: Reads, wanted: FetchRequest) -> FetchPlan:
    return await reads.service.plan(wanted, 30.0)


def at(
    offset: int, *, is_committed: bool, reach_bytes: int, local_start: int = END
) -> FetchRequest:
    make = committed if is_committed else request
    return make(
        offset,
        leader_epoch=0 if offset < 30 else 2,
        lineage=LINEAGE,
        reach_bytes=reach_bytes,
        local_log_start_offset=local_start,
    )


@pytest.mark.parametrize("transactional", [None, 1, 4])
async def test_they_are_what_metadata_would_answer(reads: Reads, transactional: int | None) -> None:
    for number in range(SEGMENTS):
        await put(reads, number, transaction=number == transactional)
    wanted = [
        at(offset, is_committed=is_committed, reach_bytes=reach_bytes)
        for offset in (0, 9, 10, 25, 29, 30, 45, 59)
        for is_committed in (False, True)
        for reach_bytes in (1, 1000, 1 << 30)
    ]
    expected = [await plan(reads, each) for each in wanted]
    await indexed(reads)
    before = reads.metadata.run_lookups
    assert [await plan(reads, each) for each in wanted] == expected
    assert reads.metadata.run_lookups == before


async def test_metadata_is_not_asked(reads: Reads) -> None:
    for number in range(SEGMENTS):
        await put(reads, number)
    await indexed(reads)
    before = asked(reads)
    for offset in range(END):
        for is_committed in (False, True):
            found = await plan(reads, at(offset, is_committed=is_committed, reach_bytes=1 << 30))
            assert found.reusable
    assert asked(reads) == before


async def test_an_index_that_does_not_reach_the_local_log_is_not_trusted(reads: Reads) -> None:
    """An abort marker may lie behind its end."""
    for number in range(SEGMENTS):
        await put(reads, number, transaction=number == SEGMENTS - 1)
    await indexed(reads, 50)
    found = await plan(reads, at(5, is_committed=True, reach_bytes=1 << 30))
    assert not found.reusable
    assert reads.metadata.run_lookups == 1
    covered = at(5, is_committed=True, reach_bytes=1 << 30, local_start=50)
    assert (await plan(reads, covered)).reusable
    assert reads.metadata.run_lookups == 1


async def test_an_index_of_another_lineage_is_not_trusted(reads: Reads) -> None:
    for number in range(SEGMENTS):
        await put(reads, number)
    await indexed(reads)
    wanted = at(5, is_committed=True, reach_bytes=1 << 30)
    other = replace(wanted, lineage=(LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 40)))
    await plan(reads, other)
    assert reads.metadata.run_lookups == 1


async def test_what_a_reader_did_not_find_is_looked_up_and_indexed_anew(reads: Reads) -> None:
    """A scrub that copies a segment again gives it another id."""
    first = [await put(reads, number) for number in range(SEGMENTS)]
    await indexed(reads)
    await reads.delete(first[2])
    healed = await put(reads, 2)
    wanted = at(25, is_committed=False, reach_bytes=1 << 30)
    assert (await plan(reads, wanted)).segment == first[2]
    assert (await plan(reads, replace(wanted, fresh=True))).segment == healed
    assert reads.indexes.behind == 1
    await reads.indexes.update()
    before = asked(reads)
    for offset, segment in ((15, first[1]), (25, healed), (35, first[3])):
        wanted = at(offset, is_committed=False, reach_bytes=1 << 30)
        assert (await plan(reads, wanted)).segment == segment
    assert asked(reads) == before
