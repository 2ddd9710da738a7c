"""Tiered reads (SR-8, SR-9, SR-19, SR-23, K-3.7, K-3.8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from aquifer_core.errors import (
    CorruptSegmentError,
    ErrorReason,
    InvalidRequestError,
    OffsetOutOfRangeError,
    QuotaExceededError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import (
    IsolationLevel,
    RemoteLogSegmentMetadata,
)
from aquifer_manager.domain.fetch_plan import FetchRequest
from fixtures.manager_fetches import Reads, aborted, committed, request
from fixtures.manager_segments import batch

DOWN = RemoteStorageUnavailableError("store down")


@pytest.fixture
def reads() -> Reads:
    return Reads()


async def test_whole_batches_from_the_one_that_holds_the_offset(reads: Reads) -> None:
    segment = await reads.put(batch(0, 3), batch(3, 3), batch(6, 3))
    plan, data = await reads.fetch(4)
    assert data == batch(3, 3) + batch(6, 3)
    assert plan.segment == segment


async def test_a_first_batch_larger_than_allowed_comes_alone_or_not_at_all(reads: Reads) -> None:
    """T27: KAFKA-19795."""
    segment = await reads.put(batch(0, value=b"x" * 1000), batch(1))
    _, data = await reads.fetch(0, max_bytes=10)
    assert data == batch(0, value=b"x" * 1000)
    plan, data = await reads.fetch(0, max_bytes=10, min_one_batch=False)
    assert (plan.segment, data) == (segment, b"")


@pytest.mark.parametrize("min_one_batch", [True, False])
async def test_a_hole_at_the_segments_end_leads_to_the_next_segment(
    reads: Reads, min_one_batch: bool
) -> None:
    """T14, KAFKA-15388: the epoch of the next offset comes from the lineage."""
    await reads.put(batch(0, 3), end_offset=9)
    following = await reads.put(batch(10, 2, epoch=1), epochs={1: 10})
    lineage = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 10))
    plan, data = await reads.fetch(5, lineage=lineage, min_one_batch=min_one_batch)
    assert (plan.segment, plan.fetch_offset) == (following, 10)
    assert data == batch(10, 2, epoch=1)


async def test_a_hole_with_nothing_remote_behind_it_says_so(reads: Reads) -> None:
    await reads.put(batch(0, 3), end_offset=9)
    plan, data = await reads.fetch(5)
    assert (plan.segment, plan.fetch_offset, data) == (None, 10, b"")


async def test_an_offset_that_is_not_remote_is_out_of_range(reads: Reads) -> None:
    await reads.put(batch(0, 3))
    with pytest.raises(OffsetOutOfRangeError):
        await reads.fetch(3)
    with pytest.raises(OffsetOutOfRangeError):
        await reads.service.plan(request(3), 1.0)


@pytest.mark.parametrize("changes", [{"max_bytes": 0}, {"fetch_offset": -1}])
async def test_senseless_requests_are_refused(reads: Reads, changes: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        await reads.service.plan(request(0, **changes), 1.0)


async def test_sequential_reads_ask_metadata_once(reads: Reads) -> None:
    """A cold fetch costs at most one metadata read, and its neighbours none."""
    await reads.put(*(batch(n) for n in range(10)))
    for offset in range(10):
        await reads.fetch(offset, max_bytes=1)
        assert reads.metadata.lookups == (1 if offset < 7 else 2)  # what follows, near the end
    await reads.clock.sleep(3)
    await reads.fetch(0)
    assert reads.metadata.lookups == 3


async def test_failures_of_the_store_are_retried_until_it_answers(reads: Reads) -> None:
    """SR-19: 100 ms, doubling."""
    await reads.put(batch(0))
    reads.storage.fail("fetch_records", DOWN, DOWN, DOWN)
    before_s = reads.clock.monotonic_s()
    _, data = await reads.fetch(0)
    assert data == batch(0)
    assert reads.clock.monotonic_s() - before_s == pytest.approx(0.1 + 0.2 + 0.4)


async def test_failures_end_with_the_store_s_error_when_time_is_up(reads: Reads) -> None:
    """SR-19: until the caller's deadline; the answer is what went wrong, not that time was up."""
    await reads.put(batch(0))
    reads.storage.fail("fetch_records", *[DOWN] * 100)
    with pytest.raises(RemoteStorageUnavailableError, match="store down"):
        await reads.fetch(0, timeout_s=3.0)
    assert 1.0 < reads.clock.monotonic_s() - 1000.0 < 3.0


class BreakingStorage(InMemoryRemoteStorageManager):
    """Breaks off its first read after some pieces."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self._pieces: int | None = pieces

    async def fetch_records(self, *args: Any, **kwargs: Any) -> AsyncIterator[bytes | memoryview]:
        left, self._pieces = self._pieces, None
        async for piece in super().fetch_records(*args, **kwargs):
            if left == 0:
                raise DOWN
            left = None if left is None else left - 1
            yield piece


@pytest.mark.parametrize("pieces", [0, 1, 2])
async def test_a_read_that_breaks_off_goes_on_where_it_was(pieces: int) -> None:
    reads = Reads(storage=BreakingStorage(pieces))
    await reads.put(batch(0), batch(1), batch(2))
    _, data = await reads.fetch(0)
    assert data == batch(0) + batch(1) + batch(2)


async def test_damaged_data_is_not_retried(reads: Reads) -> None:
    segment = await reads.put(batch(0))
    reads.storage.corrupt_log(segment.segment_id, 70)
    with pytest.raises(CorruptSegmentError):
        await reads.fetch(0)
    assert reads.storage.calls.count("fetch_records") == 1


async def test_a_segment_deleted_meanwhile_is_not_found_after_one_fresh_look_up(
    reads: Reads,
) -> None:
    """SR-23, T32: never an empty answer."""
    segment = await reads.put(*(batch(n) for n in range(10)))
    await reads.fetch(0)
    await reads.delete(segment)
    with pytest.raises(RemoteResourceNotFoundError) as raised:
        await reads.fetch(1)
    assert raised.value.reason is ErrorReason.SEGMENT_NOT_FOUND
    assert reads.metadata.lookups == 2


async def test_another_copy_of_a_deleted_segment_is_read_instead(reads: Reads) -> None:
    first = await reads.put(batch(0), batch(1))
    await reads.fetch(0)
    second = await reads.put(batch(0), batch(1))
    await reads.delete(first)
    plan, data = await reads.fetch(1)
    assert (plan.segment, data) == (second, batch(1))


async def test_a_full_reader_queue_refuses_at_once(reads: Reads) -> None:
    """SR-9: with a delay after which to come back."""
    reads = Reads(readers=1, max_pending=1)
    await reads.put(batch(0))
    started, release = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        async with aclosing(reads.service.fetch(request(0), 5.0)) as pieces:
            async for _ in pieces:
                started.set()
                await release.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(slow())
        await started.wait()
        waiting = group.create_task(reads.fetch(0))
        await asyncio.sleep(0)
        with pytest.raises(QuotaExceededError) as raised:
            await reads.fetch(0)
        assert raised.value.reason is ErrorReason.READER_QUEUE_FULL
        assert raised.value.retry_after_ms is not None
        with pytest.raises(QuotaExceededError):
            await reads.service.plan(request(0), 5.0)
        release.set()
        assert (await waiting)[1] == batch(0)
    assert (reads.pool.active, reads.pool.pending, reads.pool.refused) == (0, 0, 2)


async def test_a_reader_given_up_frees_its_place(reads: Reads) -> None:
    reads = Reads(readers=1, max_pending=1)
    await reads.put(batch(0), batch(1))
    async with aclosing(reads.service.fetch(request(0), 5.0)) as pieces:
        await anext(pieces)
        assert reads.pool.active == 1
    assert reads.pool.active == 0
    assert (await reads.fetch(0))[1]


async def test_a_spent_fetch_quota_says_when_to_come_back() -> None:
    """KIP-956: what was read is charged, not what was allowed."""
    reads = Reads(bytes_per_second=100)
    await reads.put(batch(0, value=b"x" * 300), batch(1))
    _, data = await reads.fetch(0, max_bytes=1)
    with pytest.raises(QuotaExceededError) as raised:
        await reads.fetch(1)
    assert raised.value.reason is ErrorReason.FETCH_QUOTA
    wait_ms = raised.value.retry_after_ms or 0
    assert wait_ms == pytest.approx((len(data) - 100) * 10, abs=20)
    await reads.clock.sleep(wait_ms / 1000)
    await reads.fetch(1)


async def test_planning_reads_no_data_and_names_the_next_segment_near_the_end(
    reads: Reads,
) -> None:
    first = await reads.put(*(batch(n) for n in range(10)))
    second = await reads.put(batch(10))
    early = await reads.service.plan(request(1), 1.0)
    late = await reads.service.plan(request(8), 1.0)
    assert (early.segment, early.next_segment) == (first, None)
    assert (late.segment, late.next_segment) == (first, second)
    assert "fetch_records" not in reads.storage.calls


async def planned(reads: Reads, wanted: FetchRequest) -> list[tuple[int, int]]:
    plan = await reads.service.plan(wanted, 1.0)
    return [(entry.producer_id, entry.first_offset) for entry in plan.aborted]


async def test_aborted_transactions_of_the_range_are_reported(reads: Reads) -> None:
    """K-3.8: entries that end at or after the fetch offset and begin before the range's end."""
    entries = [aborted(0, 2, 3), aborted(4, 6, 7, producer=8), aborted(8, 9, 10, producer=9)]
    batches = [batch(n) for n in range(10)]
    await reads.put(*batches, aborted=entries)
    assert await planned(reads, committed(0)) == [(7, 0), (8, 4), (9, 8)]
    assert await planned(reads, committed(3)) == [(8, 4), (9, 8)]
    assert await planned(reads, committed(3, max_bytes=2 * len(batches[0]))) == [(8, 4)]
    assert await planned(reads, request(0)) == []


async def test_a_transaction_aborted_in_a_later_segment_is_found_without_asking_the_ones_between(
    reads: Reads,
) -> None:
    """T28, KIP-1058: metadata skips segments without a transaction index."""
    for base in range(0, 50, 10):
        await reads.put(*(batch(base + n) for n in range(10)))
    await reads.put(*(batch(50 + n) for n in range(10)), aborted=[aborted(5, 55, 56)])
    assert await planned(reads, committed(0)) == [(7, 5)]
    assert reads.metadata.txn_lookups == 1
    assert reads.storage.calls.count("fetch_index") == 2


async def test_no_index_is_read_where_no_segment_has_a_transaction_index(reads: Reads) -> None:
    await reads.put(*(batch(n) for n in range(10)))
    await reads.put(*(batch(10 + n) for n in range(10)))
    assert await planned(reads, committed(0)) == []
    assert reads.metadata.txn_lookups == 1
    assert "fetch_index" not in reads.storage.calls


async def test_a_plan_near_the_end_names_what_follows_and_what_was_aborted(reads: Reads) -> None:
    await reads.put(*(batch(n) for n in range(10)))
    following = await reads.put(batch(10), aborted=[aborted(8, 10, 11)])
    plan = await reads.service.plan(committed(9), 30.0)
    assert plan.next_segment == following
    assert [entry.first_offset for entry in plan.aborted] == [8]


async def test_the_search_ends_with_an_entry_whose_stable_offset_covers_the_range(
    reads: Reads,
) -> None:
    await reads.put(*(batch(n) for n in range(10)), aborted=[aborted(1, 2, 3)])
    await reads.put(*(batch(10 + n) for n in range(10)), aborted=[aborted(11, 12, 13)])
    await reads.put(*(batch(20 + n) for n in range(10)), aborted=[aborted(4, 22, 23)])
    assert await planned(reads, committed(0)) == [(7, 1)]
    assert reads.metadata.txn_lookups == 1


async def test_the_search_crosses_leader_epochs(reads: Reads) -> None:
    """K-3.8 vector: epochs 0@10, 1@100, 2@200; only epoch 2 has an index."""
    await reads.put(*(batch(n) for n in range(10, 100)), epochs={0: 10})
    await reads.put(*(batch(n) for n in range(100, 200)), epochs={1: 100})
    await reads.put(
        *(batch(n) for n in range(200, 210)), epochs={2: 200}, aborted=[aborted(20, 205, 206)]
    )
    lineage = (LeaderEpochEntry(0, 10), LeaderEpochEntry(1, 100), LeaderEpochEntry(2, 200))
    assert await planned(reads, committed(15, lineage=lineage)) == [(7, 20)]


async def test_a_first_batch_larger_than_allowed_counts_whole_for_aborted_transactions(
    reads: Reads,
) -> None:
    await reads.put(
        batch(0, 50, value=b"x" * 20), batch(50), aborted=[aborted(40, 49, 50), aborted(50, 50, 51)]
    )
    found = await planned(reads, committed(0, max_bytes=1))
    assert (7, 40) in found


async def test_planning_for_read_committed_copes_with_a_segment_deleted_meanwhile(
    reads: Reads,
) -> None:
    first = await reads.put(batch(0), aborted=[aborted(0, 0, 1)])
    await reads.service.plan(committed(0), 1.0)
    second = await reads.put(batch(0), aborted=[aborted(0, 0, 1)])
    await reads.delete(first)
    assert (await reads.service.plan(committed(0), 1.0)).segment == second
    await reads.delete(second)
    with pytest.raises(RemoteResourceNotFoundError):
        await reads.service.plan(committed(0), 1.0)


class MeetingStorage(InMemoryRemoteStorageManager):
    """Answers a read only once the search for aborted transactions has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.searched = asyncio.Event()
        self.next_segments: list[RemoteLogSegmentMetadata | None] = []

    async def fetch_records(self, *args: Any, **kwargs: Any) -> AsyncIterator[bytes | memoryview]:
        self.next_segments.append(kwargs.get("next_segment"))
        await self.searched.wait()
        async for piece in super().fetch_records(*args, **kwargs):
            yield piece

    async def fetch_index(self, *args: Any, **kwargs: Any) -> bytes:
        self.searched.set()
        return await super().fetch_index(*args, **kwargs)


async def test_aborted_transactions_are_searched_while_the_store_reads() -> None:
    storage = MeetingStorage()
    reads = Reads(storage=storage)
    await reads.put(batch(0), aborted=[aborted(0, 0, 1)])
    async with asyncio.timeout(60):
        plan, data = await reads.fetch(0, isolation_level=IsolationLevel.READ_COMMITTED)
    assert data == batch(0)
    assert [entry.first_offset for entry in plan.aborted] == [0]


async def test_storage_is_told_which_segment_follows_near_the_end() -> None:
    storage = MeetingStorage()
    storage.searched.set()
    reads = Reads(storage=storage)
    await reads.put(*(batch(n) for n in range(10)))
    following = await reads.put(batch(10))
    await reads.fetch(0, max_bytes=1)
    await reads.fetch(9, max_bytes=1)
    assert storage.next_segments == [None, following]
