"""Readers while metadata is down: the local remote index answers what it surely knows (SR-33)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aquifer_core.errors import (
    OffsetOutOfRangeError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.domain.fetch_plan import FetchPlan
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.segment_finder import SegmentFinder
from fixtures.manager_fetches import TIP, FailingMetadata, Reads, aborted, committed, request
from fixtures.manager_segments import batch
from fixtures.manager_world import START_MS

LINEAGE = (LeaderEpochEntry(0, 0),)
FAR = 1 << 30


class Reading(Reads):
    """Reads of three segments of ten records, at times START_MS and their offset, with an index."""

    def __init__(self, directory: Path) -> None:
        self.failing = FailingMetadata()
        super().__init__(metadata=self.failing, index_directory=directory)
        self.finder = SegmentFinder(
            self.metadata,
            self.indexes,
            clock=self.clock,
            telemetry=NoTelemetry(),
            patience_s=0.05,
        )

    async def fill(self, **kwargs: Any) -> list[RemoteLogSegmentMetadata]:
        segments = [
            await self.put(*(batch(base + n, timestamp_ms=START_MS + base + n) for n in range(10)))
            for base in (0, 10)
        ]
        last = (batch(20 + n, timestamp_ms=START_MS + 20 + n) for n in range(10))
        segments.append(await self.put(*last, **kwargs))
        await self.index(29)
        return segments

    async def index(self, highest: int, *, log_start: int = 0) -> None:
        self.indexes.should_reach(TIP, LINEAGE, log_start, highest)
        await self.indexes.update()
        assert self.indexes.behind == 0

    async def at(self, offset: int, epoch: int = 0) -> RemoteLogSegmentMetadata | None:
        return await self.finder.at(TIP, epoch, offset)

    async def since(
        self, timestamp_ms: int, min_offset: int, local_start: int
    ) -> RemoteLogSegmentMetadata | None:
        return await self.finder.for_timestamp(
            TIP, {0: 0}, timestamp_ms, min_offset, local_log_start_offset=local_start
        )

    async def transactional(
        self,
        offset: int,
        local_start: int | None,
        lineage: tuple[LeaderEpochEntry, ...] = LINEAGE,
    ) -> RemoteLogSegmentMetadata | None:
        return await self.finder.next_with_transactions(
            TIP, lineage, offset, local_log_start_offset=local_start
        )


@pytest.fixture
def reads(tmp_path: Path) -> Reading:
    return Reading(tmp_path)


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_reads_go_on(reads: Reading, how: str) -> None:
    segments = await reads.fill()
    setattr(reads.failing, how, True)
    for offset in (0, 9, 10, 25):
        assert await reads.at(offset) == segments[offset // 10]
    plan, data = await reads.fetch(5, local_log_start_offset=30)
    assert plan.segment == segments[0]
    assert data == b"".join(batch(n, timestamp_ms=START_MS + n) for n in range(5, 10))


async def test_committed_reads_go_on_with_their_aborted_transactions(reads: Reading) -> None:
    """K-3.8: also when the marker lies in a later segment."""
    segments = await reads.fill(aborted=[aborted(5, 25, 26)])
    reads.failing.away = True
    plan, _ = await reads.fetch(
        5, isolation_level=committed(0).isolation_level, local_log_start_offset=30
    )
    assert plan.segment == segments[0]
    assert [entry.first_offset for entry in plan.aborted] == [5]


async def test_plans_are_for_one_read_as_long_as_metadata_is_down(reads: Reading) -> None:
    segments = await reads.fill()
    wanted = request(5, reach_bytes=FAR, local_log_start_offset=31)
    assert (await reads.service.plan(wanted, 30.0)).reusable
    reads.failing.away = True
    plan = await reads.service.plan(wanted, 30.0)
    assert isinstance(plan, FetchPlan)
    assert (plan.segment, plan.reusable) == (segments[0], False)


async def test_metadata_is_asked_again_after_a_moment(reads: Reading) -> None:
    await reads.fill()
    reads.failing.away = True
    await reads.at(5)
    reads.failing.away = False
    asked = reads.failing.lookups
    await reads.at(5)
    assert reads.failing.lookups == asked, "it has just failed"
    await reads.clock.sleep(2.0)
    await reads.at(5)
    assert reads.failing.lookups == asked + 1


async def test_what_an_index_says_is_missing_may_only_be_newer_than_it(reads: Reading) -> None:
    await reads.fill()
    reads.failing.away = True
    questions: list[Callable[[], Awaitable[object]]] = [
        lambda: reads.at(30),
        lambda: reads.at(5, epoch=1),
        lambda: reads.since(START_MS + 30, 0, 31),
        lambda: reads.transactional(5, 31),
        lambda: reads.transactional(5, None),
        lambda: reads.transactional(5, 30, (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 15))),
        lambda: reads.transactional(35, 40),
    ]
    for question in questions:
        with pytest.raises(RemoteStorageUnavailableError):
            await question()


async def test_what_follows_locally_need_not_be_known(reads: Reading) -> None:
    await reads.fill()
    reads.failing.away = True
    assert await reads.since(START_MS + 30, 0, 30) is None
    assert await reads.transactional(5, 30) is None
    assert await reads.transactional(5, 12) is None


async def test_searches_by_time_go_on(reads: Reading) -> None:
    segments = await reads.fill()
    reads.failing.away = True
    assert await reads.since(START_MS + 12, 0, 30) == segments[1]
    assert await reads.since(START_MS, 25, 30) == segments[2]


async def test_an_index_that_begins_too_late_does_not_know_what_comes_first(
    reads: Reading,
) -> None:
    await reads.fill()
    await reads.indexes.read(TIP, lambda index: index.cut(0))
    await reads.index(29, log_start=15)
    reads.failing.away = True
    assert await reads.at(17) is not None
    for question in (reads.since(START_MS, 0, 30), reads.transactional(5, 30)):
        with pytest.raises(RemoteStorageUnavailableError):
            await question


async def test_a_segment_deleted_meanwhile_is_not_remembered(reads: Reading) -> None:
    segments = await reads.fill()
    await reads.delete(segments[0])
    reads.failing.away = True
    with pytest.raises((RemoteStorageUnavailableError, RemoteResourceNotFoundError)):
        await reads.fetch(5, timeout_s=1.0)
    reads.failing.away = False
    await reads.clock.sleep(2.0)
    with pytest.raises((OffsetOutOfRangeError, RemoteResourceNotFoundError)):
        await reads.fetch(5, timeout_s=1.0)


async def test_metadata_that_is_only_slow_is_waited_for_where_nobody_else_knows(
    reads: Reading,
) -> None:
    await reads.fill()
    later = await reads.put(batch(30))
    reads.failing.silent = True
    waiting = asyncio.create_task(reads.at(30))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    waiting.cancel()
    reads.failing.silent = False
    await reads.clock.sleep(2.0)
    assert await reads.at(30) == later


async def test_a_partition_without_an_index_fails_as_ever(reads: Reading) -> None:
    await reads.put(batch(0))
    reads.failing.away = True
    with pytest.raises(RemoteStorageUnavailableError):
        await reads.at(0)
