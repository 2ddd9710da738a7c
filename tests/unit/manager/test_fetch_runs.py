"""Plans that more than one read may go by (SR-19, K-3.7, K-3.8)."""

import pytest
from aquifer_core.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment_run import RunsUnsupportedError, SegmentRun
from aquifer_manager.domain.fetch_plan import FetchPlan, FetchRequest
from fixtures.manager_fetches import CountingMetadata, Reads, aborted, committed, request
from fixtures.manager_segments import batch

FAR = 1 << 30


@pytest.fixture
def reads() -> Reads:
    return Reads()


async def plan(reads: Reads, wanted: FetchRequest) -> FetchPlan:
    return await reads.service.plan(wanted, 30.0)


async def test_one_question_to_metadata_plans_many_reads(reads: Reads) -> None:
    segments = [await reads.put(*(batch(base + n) for n in range(10))) for base in range(0, 40, 10)]
    for wanted in (request(5, reach_bytes=FAR), committed(5, reach_bytes=FAR)):
        found = await plan(reads, wanted)
        assert found.reusable
        assert [found.segment, *found.following] == segments
        assert found.next_segment is None
        assert found.aborted == ()
    assert (reads.metadata.run_lookups, reads.metadata.lookups) == (2, 0)
    assert reads.metadata.txn_lookups == 0
    assert "fetch_index" not in reads.storage.calls


async def test_storage_is_told_what_follows_once_a_reader_nears_the_end(reads: Reads) -> None:
    await reads.put(*(batch(n) for n in range(10)))
    second = await reads.put(batch(10), aborted=[aborted(10, 10, 11)])
    for wanted in (request(8, reach_bytes=FAR), committed(8, reach_bytes=FAR)):
        assert (await plan(reads, wanted)).next_segment == second


async def test_a_plan_reaches_as_far_as_asked(reads: Reads) -> None:
    for base in range(0, 40, 10):
        await reads.put(*(batch(base + n) for n in range(10)))
    assert (await plan(reads, request(5, reach_bytes=1))).following == ()
    unasked = await plan(reads, request(5))
    assert (unasked.reusable, unasked.following) == (False, ())


@pytest.mark.parametrize("epoch", [0, 1])
async def test_where_anything_may_have_been_aborted_each_committed_read_is_planned(
    reads: Reads, epoch: int
) -> None:
    """K-3.8: the marker of a transaction may be far behind, in another leader epoch."""
    lineage = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 30))
    for base in range(0, 30, 10):
        await reads.put(*(batch(base + n) for n in range(10)))
    start = 30 if epoch else 20
    if epoch:
        await reads.put(
            *(batch(30 + n, epoch=1) for n in range(10)),
            epochs={1: 30},
            aborted=[aborted(15, 35, 36)],
        )
    else:
        await reads.put(batch(30), aborted=[aborted(15, 30, 31)])
    found = await plan(reads, committed(10, reach_bytes=FAR, lineage=lineage))
    assert not found.reusable
    assert [entry.first_offset for entry in found.aborted] == [15]
    uncommitted = await plan(reads, request(10, reach_bytes=FAR, lineage=lineage))
    assert uncommitted.reusable
    assert len(uncommitted.following) == 1 + (start == 20)


async def test_transactions_before_the_segment_do_not_matter(reads: Reads) -> None:
    await reads.put(*(batch(n) for n in range(10)), aborted=[aborted(0, 5, 6)])
    await reads.put(*(batch(10 + n) for n in range(10)))
    assert not (await plan(reads, committed(9, reach_bytes=FAR))).reusable
    assert (await plan(reads, committed(10, reach_bytes=FAR))).reusable


async def test_under_a_quota_every_read_is_planned() -> None:
    """KIP-956: a reader must come by to be counted."""
    reads = Reads(bytes_per_second=1 << 30)
    await reads.put(batch(0))
    await reads.put(batch(1))
    found = await plan(reads, request(0, reach_bytes=FAR))
    assert (found.reusable, found.following) == (False, ())


async def test_an_offset_that_is_not_remote_has_no_plan(reads: Reads) -> None:
    await reads.put(batch(0))
    with pytest.raises(OffsetOutOfRangeError):
        await plan(reads, request(1, reach_bytes=FAR))
    with pytest.raises(RemoteResourceNotFoundError):
        await plan(reads, request(1, reach_bytes=FAR, fresh=True))


async def test_a_segment_deleted_while_its_index_is_read_is_planned_anew(reads: Reads) -> None:
    first = await reads.put(batch(0), aborted=[aborted(0, 0, 1)])
    second = await reads.put(batch(0), aborted=[aborted(0, 0, 1)])
    await reads.storage.delete_log_segment_data(second)
    await reads.delete(first)
    with pytest.raises(RemoteResourceNotFoundError):
        await plan(reads, committed(0, reach_bytes=FAR))
    assert reads.metadata.run_lookups == 2


async def test_a_fresh_plan_does_not_name_what_is_remembered(reads: Reads) -> None:
    first = await reads.put(batch(0))
    assert (await plan(reads, request(0))).segment == first
    await reads.delete(first)
    assert (await plan(reads, request(0))).segment == first
    with pytest.raises(RemoteResourceNotFoundError):
        await plan(reads, request(0, fresh=True))


class OldMetadata(CountingMetadata):
    """Of a version that has no runs."""

    async def segment_run(self, *args: object) -> SegmentRun:
        self.run_lookups += 1
        raise RunsUnsupportedError("no runs yet")


async def test_metadata_without_runs_is_asked_the_other_questions() -> None:
    reads = Reads(metadata=OldMetadata())
    await reads.put(*(batch(n) for n in range(10)))
    await reads.put(*(batch(10 + n) for n in range(10)), aborted=[aborted(3, 10, 11)])
    for _ in range(3):
        found = await plan(reads, committed(2, reach_bytes=FAR))
        assert not found.reusable
        assert [entry.first_offset for entry in found.aborted] == [3]
    assert reads.metadata.run_lookups == 1
    await reads.clock.sleep(61)
    await plan(reads, committed(2, reach_bytes=FAR))
    assert reads.metadata.run_lookups == 2
