import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aquifer_broker.tiering.fetch_paths import FetchedRecords
from aquifer_broker.tiering.manager_client import FetchPlan, RemoteFetch
from aquifer_broker.tiering.remote_reads import RemoteReads
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    QuotaExceededError,
    RemoteStorageUnavailableError,
)
from aquifer_core.segment import IsolationLevel
from fixtures.polling import eventually
from fixtures.tiered_broker import partition_of

_PLAN = FetchPlan(segment=None, fetch_offset=0, max_bytes=100, aborted=())


class _Path:
    """A path whose reads end when the test says so."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.size_bytes = 60

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        del deadline_s
        self.started.append(request.fetch_offset)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return FetchedRecords(plan=_PLAN, pieces=[b"x" * self.size_bytes])


def _fetch(offset: int, max_bytes: int = 100) -> RemoteFetch:
    return RemoteFetch(
        topic_id_partition=partition_of("events"),
        leader_epoch=0,
        fetch_offset=offset,
        max_bytes=max_bytes,
        min_one_batch=True,
        isolation=IsolationLevel.READ_UNCOMMITTED,
        lineage=((0, 0),),
    )


Make = Callable[..., RemoteReads]


@pytest.fixture
def path() -> _Path:
    return _Path()


@pytest.fixture
async def make(path: _Path) -> AsyncIterator[Make]:
    made: list[RemoteReads] = []

    def build(**changes: float) -> RemoteReads:
        values = {"max_reads": 10, "budget_bytes": 10_000, "deadline_s": 30.0, **changes}
        made.append(RemoteReads(path, **values))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for reads in made:
        await reads.close()


async def _give_up(reading: Awaitable[FetchedRecords]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reading


async def test_a_read_that_its_caller_gave_up_serves_the_next_caller(
    path: _Path, make: Make
) -> None:
    """SR-19"""
    reads = make()
    await _give_up(reads.read(_fetch(5)))
    path.go.set()
    await eventually(lambda: reads.running == 0)

    records = await reads.read(_fetch(5))

    assert records.size_bytes == 60
    assert path.started == [5]
    await reads.read(_fetch(5))
    assert path.started == [5, 5]


async def test_equal_reads_share_one(path: _Path, make: Make) -> None:
    reads = make()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reads.read(_fetch(5))) for _ in range(3)]
        group.create_task(reads.read(_fetch(6)))
        await eventually(lambda: len(path.started) == 2)
        path.go.set()

    assert sorted(path.started) == [5, 6]
    assert {task.result().size_bytes for task in tasks} == {60}


async def test_more_reads_than_allowed_are_refused_with_a_time_to_come_back(
    path: _Path, make: Make
) -> None:
    """SR-9"""
    reads = make(max_reads=2)
    await _give_up(reads.read(_fetch(1)))
    await _give_up(reads.read(_fetch(2)))

    with pytest.raises(QuotaExceededError) as refused:
        await reads.read(_fetch(3))

    assert refused.value.reason is ErrorReason.READER_QUEUE_FULL
    assert refused.value.retry_after_ms


async def test_bytes_under_way_are_bounded_and_kept_results_make_room(
    path: _Path, make: Make
) -> None:
    reads = make(budget_bytes=250)
    await _give_up(reads.read(_fetch(1)))
    await _give_up(reads.read(_fetch(2)))
    with pytest.raises(QuotaExceededError):
        await reads.read(_fetch(3))
    path.go.set()
    await eventually(lambda: reads.running == 0)

    for offset in (3, 4, 5):
        assert (await reads.read(_fetch(offset))).size_bytes == 60


async def test_a_single_read_may_exceed_the_budget(path: _Path, make: Make) -> None:
    path.go.set()
    assert (await make(budget_bytes=10).read(_fetch(1))).size_bytes == 60


async def test_a_failure_is_told_to_whoever_waits_and_never_kept(path: _Path, make: Make) -> None:
    reads = make()
    path.error = RemoteStorageUnavailableError("away")
    path.go.set()
    with pytest.raises(RemoteStorageUnavailableError):
        await reads.read(_fetch(1))

    path.error = None
    assert (await reads.read(_fetch(1))).size_bytes == 60


async def test_a_failure_after_everybody_left_is_forgotten(path: _Path, make: Make) -> None:
    reads = make()
    await _give_up(reads.read(_fetch(1)))
    path.error = RemoteStorageUnavailableError("away")
    path.go.set()
    await eventually(lambda: reads.running == 0)

    path.error = None
    assert (await reads.read(_fetch(1))).size_bytes == 60


async def test_a_read_without_end_is_ended(path: _Path, make: Make) -> None:
    with pytest.raises(DeadlineExceededError):
        await make(deadline_s=0.02).read(_fetch(1))


async def test_closing_ends_reads_under_way(path: _Path, make: Make) -> None:
    reads = make()
    await _give_up(reads.read(_fetch(1)))
    await reads.close()

    assert reads.running == 0
    with pytest.raises(QuotaExceededError):
        await reads.read(_fetch(1))
