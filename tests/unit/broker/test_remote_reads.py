import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import builders
import pytest
from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.tiering.fetch_paths import FetchedRecords
from aquifer_broker.tiering.read_yield import ReadYield
from aquifer_broker.tiering.remote_fetch import FetchPlan, RemoteFetch
from aquifer_broker.tiering.remote_reads import ReadRecords, RemoteReads
from aquifer_core.errors import (
    DeadlineExceededError,
    ErrorReason,
    QuotaExceededError,
    RemoteStorageUnavailableError,
)
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.segment import IsolationLevel
from fixtures.polling import eventually
from fixtures.tiered_broker import partition_of

_PLAN = FetchPlan(segment=None, fetch_offset=0, max_bytes=100, aborted=())
_BATCH = builders.record_batch(0, 1, 32)
_REMOTE_END = 1_000
_EPOCH_AT = 500


class _Path:
    """A path over batches of one record; its reads end when the test says so."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.requests: list[RemoteFetch] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.fails_once = False

    async def fetch(self, request: RemoteFetch, deadline_s: float) -> FetchedRecords:
        del deadline_s
        self.started.append(request.fetch_offset)
        self.requests.append(request)
        await self.go.wait()
        if (error := self.error) is not None:
            self.error = None if self.fails_once else error
            raise error
        count = max(request.max_bytes // len(_BATCH), 1)
        last = min(request.fetch_offset + count, _REMOTE_END)
        batches = (builders.record_batch(at, 1, 32) for at in range(request.fetch_offset, last))
        return FetchedRecords(plan=_PLAN, pieces=[b"".join(batches)])


def _fetch(offset: int, max_bytes: int = len(_BATCH)) -> RemoteFetch:
    return RemoteFetch(
        topic_id_partition=partition_of("events"),
        leader_epoch=0 if offset < _EPOCH_AT else 3,
        fetch_offset=offset,
        max_bytes=max_bytes,
        min_one_batch=True,
        isolation=IsolationLevel.READ_UNCOMMITTED,
        lineage=((0, 0), (3, _EPOCH_AT)),
        local_log_start_offset=_REMOTE_END,
    )


def _offsets(read: ReadRecords) -> list[int]:
    return [batch.base_offset for batch in iter_batches(b"".join(read.part.pieces))]


Make = Callable[..., RemoteReads]


@pytest.fixture
def path() -> _Path:
    return _Path()


@pytest.fixture
async def make(path: _Path) -> AsyncIterator[Make]:
    made: list[RemoteReads] = []

    def build(**changes: object) -> RemoteReads:
        values = {"max_reads": 10, "budget_bytes": 100 * len(_BATCH), "deadline_s": 30.0, **changes}
        made.append(RemoteReads(path, **values))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for reads in made:
        await reads.close()


async def _give_up(reading: Awaitable[ReadRecords]) -> None:
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

    assert _offsets(records) == [5]
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
    assert [_offsets(task.result()) for task in tasks] == [[5]] * 3


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
    reads = make(budget_bytes=2 * len(_BATCH) + 1)
    await _give_up(reads.read(_fetch(1)))
    await _give_up(reads.read(_fetch(2)))
    with pytest.raises(QuotaExceededError):
        await reads.read(_fetch(3))
    path.go.set()
    await eventually(lambda: reads.running == 0)

    for offset in (3, 4, 5):
        assert _offsets(await reads.read(_fetch(offset))) == [offset]


async def test_a_single_read_may_exceed_the_budget(path: _Path, make: Make) -> None:
    path.go.set()
    assert _offsets(await make(budget_bytes=10).read(_fetch(1))) == [1]


async def test_a_failure_is_told_to_whoever_waits_and_never_kept(path: _Path, make: Make) -> None:
    reads = make()
    path.error = RemoteStorageUnavailableError("away")
    path.go.set()
    with pytest.raises(RemoteStorageUnavailableError):
        await reads.read(_fetch(1))

    path.error = None
    assert _offsets(await reads.read(_fetch(1))) == [1]


@pytest.mark.parametrize("offset", [5, 6])
async def test_who_comes_just_after_a_failure_is_not_told_of_it(
    path: _Path, make: Make, offset: int
) -> None:
    """It was that of another read, of whatever partition."""
    reads = make()
    path.error, path.fails_once = RemoteStorageUnavailableError("the store is away"), True
    failing = asyncio.create_task(reads.read(_fetch(5)))
    await eventually(lambda: path.started == [5])
    path.go.set()
    # The read fails in the next step of the loop, and this one comes right behind it.
    other = replace(_fetch(offset), topic_id_partition=partition_of("others"))
    coming = asyncio.create_task(reads.read(other if offset != 5 else _fetch(5)))
    await asyncio.wait([failing])

    assert _offsets(await coming) == [offset]
    with pytest.raises(RemoteStorageUnavailableError):
        failing.result()


async def test_a_failure_after_everybody_left_is_forgotten(path: _Path, make: Make) -> None:
    reads = make()
    await _give_up(reads.read(_fetch(1)))
    path.error = RemoteStorageUnavailableError("away")
    path.go.set()
    await eventually(lambda: reads.running == 0)

    path.error = None
    assert _offsets(await reads.read(_fetch(1))) == [1]


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


_SIZE = len(_BATCH)


async def _read_on(reads: RemoteReads, path: _Path, until: int) -> None:
    """Reads batch by batch, every time when the reads under way are done."""
    for offset in range(until):
        assert _offsets(await reads.read(_fetch(offset))) == [offset]
        await eventually(lambda: reads.running == 0)


async def test_a_reader_that_reads_on_is_read_ahead_of_in_growing_steps(
    path: _Path, make: Make
) -> None:
    path.go.set()
    await _read_on(make(read_ahead_bytes=16 * _SIZE), path, 60)

    assert path.started[:4] == [0, 1, 5, 21]
    assert [request.max_bytes // _SIZE for request in path.requests[:4]] == [1, 4, 16, 16]
    assert len(path.requests) < 8


async def test_without_reading_ahead_each_fetch_is_one_read(path: _Path, make: Make) -> None:
    path.go.set()
    await _read_on(make(), path, 10)

    assert path.started == list(range(10))


async def test_a_reader_that_jumps_is_read_what_it_asks_for(path: _Path, make: Make) -> None:
    path.go.set()
    reads = make(read_ahead_bytes=16 * _SIZE)
    for offset in (0, 300, 20, 700):
        await reads.read(_fetch(offset))
        await eventually(lambda: reads.running == 0)

    demanded = [r for r in path.requests if r.fetch_offset in (0, 300, 20, 700)]
    assert [request.max_bytes for request in demanded] == [_SIZE] * 4


async def test_reading_ahead_ends_with_what_is_remote_and_follows_the_lineage(
    path: _Path, make: Make
) -> None:
    path.go.set()
    reads = make(read_ahead_bytes=16 * _SIZE)
    offset = 480
    while offset < _REMOTE_END:
        offset = (await reads.read(_fetch(offset))).part.end_offset
        await eventually(lambda: reads.running == 0)

    assert offset == _REMOTE_END
    assert max(path.started) < _REMOTE_END
    assert {r.leader_epoch for r in path.requests if r.fetch_offset < _EPOCH_AT} == {0}
    assert {r.leader_epoch for r in path.requests if r.fetch_offset >= _EPOCH_AT} == {3}


async def test_reading_ahead_takes_half_of_the_budget_at_most(path: _Path, make: Make) -> None:
    path.go.set()
    reads = make(read_ahead_bytes=16 * _SIZE, budget_bytes=6 * _SIZE)
    await _read_on(reads, path, 30)

    assert max(request.max_bytes for request in path.requests) == _SIZE


async def test_a_read_may_bring_the_rest_of_a_segment_where_there_is_plenty_of_room(
    path: _Path, make: Make
) -> None:
    """What it may bring counts towards the budget from the start on."""
    path.go.set()
    reads = make(read_ahead_bytes=2 * _SIZE, budget_bytes=7 * _SIZE)
    await reads.read(_fetch(0))
    await reads.read(_fetch(700))
    await reads.read(_fetch(900))

    asked = {r.fetch_offset: r.most_bytes // _SIZE for r in path.requests}
    assert (asked[0], asked[700], asked[900]) == (2, 1, 1)


async def test_a_failed_read_ahead_is_read_again_in_small(path: _Path, make: Make) -> None:
    path.go.set()
    reads = make(read_ahead_bytes=16 * _SIZE)
    await reads.read(_fetch(0))
    await eventually(lambda: reads.running == 0)
    path.error = RemoteStorageUnavailableError("away")
    for offset in range(1, 5):
        await reads.read(_fetch(offset))
        await eventually(lambda: reads.running == 0)
    assert path.requests[-1] == replace(_fetch(5), max_bytes=16 * _SIZE)
    path.error = None

    assert _offsets(await reads.read(_fetch(5))) == [5]
    assert _fetch(5) in path.requests


async def test_what_was_read_is_of_no_use_once_the_local_log_begins_later(
    path: _Path, make: Make
) -> None:
    """An abort marker may have become remote since."""
    path.go.set()
    reads = make(read_ahead_bytes=16 * _SIZE)
    await _read_on(reads, path, 10)
    before = len(path.requests)

    await reads.read(replace(_fetch(10), local_log_start_offset=_REMOTE_END + 5))

    assert path.requests[before].local_log_start_offset == _REMOTE_END + 5


async def test_a_reader_of_very_much_does_not_keep_another_from_reading(
    path: _Path, make: Make
) -> None:
    """T52: the first to come would have every read."""
    reads = make(max_reads=10)
    greedy, other = object(), object()
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_outcome(reads.read(_fetch(at), greedy))) for at in range(0, 60, 2)
        ]
        await eventually(lambda: any(task.done() for task in asked))
        assert reads.running == 8
        wanted = group.create_task(reads.read(_fetch(200), other))
        await eventually(lambda: reads.running == 9)
        path.go.set()

    assert _offsets(wanted.result()) == [200]
    assert sum(task.result() is not None for task in asked) == 8


async def test_room_is_made_of_what_is_kept_for_the_same_reader_first(
    path: _Path, make: Make
) -> None:
    reads = make(max_reads=4)
    other, greedy = object(), object()
    await _give_up(reads.read(_fetch(10), other))
    for offset in (20, 30, 40):
        await _give_up(reads.read(_fetch(offset), greedy))
    path.go.set()
    await eventually(lambda: reads.running == 0)

    await reads.read(_fetch(50), greedy)
    assert path.started == [10, 20, 30, 40, 50]
    await reads.read(_fetch(10), other)
    assert path.started == [10, 20, 30, 40, 50]


def _one_at_a_time() -> ReadYield:
    """There is hot traffic, and place for a single read."""
    hot = HotTraffic(lambda: 0.0)
    hot.seen()
    one = ReadYield(target_s=1.0, most_reads=1, hot=hot)
    one.places.linger_s = 600.0
    return one


async def test_a_read_that_waits_for_its_place_outlives_its_caller_and_serves_the_next(
    path: _Path, make: Make
) -> None:
    """SR-19"""
    one = _one_at_a_time()
    reads = make(read_yield=one)
    await _give_up(reads.read(_fetch(1), "a"))
    await _give_up(reads.read(_fetch(5), "b"))
    await _give_up(reads.read(_fetch(5), "b"))
    assert path.started == [1]
    assert one.places.waiting == 1

    path.go.set()
    assert _offsets(await reads.read(_fetch(1), "a")) == [1]
    assert _offsets(await reads.read(_fetch(5), "b")) == [5]
    assert path.started == [1, 5]
    assert one.places.used == 0


async def test_a_place_is_kept_until_the_last_part_is_taken(path: _Path, make: Make) -> None:
    one = _one_at_a_time()
    reads = make(read_yield=one, read_ahead_bytes=4 * _SIZE)
    path.go.set()
    assert _offsets(await reads.read(_fetch(0), "a")) == [0]
    assert _offsets(await reads.read(_fetch(1), "a")) == [1]
    async with asyncio.TaskGroup() as group:
        other = group.create_task(reads.read(_fetch(100), "b"))
        await eventually(lambda: one.places.waiting == 1)
        for offset in (2, 3):
            assert _offsets(await reads.read(_fetch(offset), "a")) == [offset]
            assert path.started == [0, 1]
        assert _offsets(await reads.read(_fetch(4), "a")) == [4]

    assert _offsets(other.result()) == [100]
    assert path.started[:3] == [0, 1, 100]


async def test_a_reader_of_several_partitions_does_not_wait_for_itself(
    path: _Path, make: Make
) -> None:
    reads = make(read_yield=_one_at_a_time(), read_ahead_bytes=4 * _SIZE)
    path.go.set()
    await reads.read(_fetch(0), "a")
    async with asyncio.timeout(60):
        await reads.read(_fetch(1), "a")
        assert _offsets(await reads.read(_fetch(100), "a")) == [100]


async def test_a_failed_read_leaves_its_place_and_closing_leaves_nobody_waiting(
    path: _Path, make: Make
) -> None:
    one = _one_at_a_time()
    reads = make(read_yield=one)
    path.error = RemoteStorageUnavailableError("away")
    path.go.set()
    with pytest.raises(RemoteStorageUnavailableError):
        await reads.read(_fetch(1), "a")
    assert one.places.used == 0

    path.go.clear()
    await _give_up(reads.read(_fetch(1), "a"))
    await _give_up(reads.read(_fetch(5), "b"))
    await reads.close()
    assert (one.places.used, one.places.waiting) == (0, 0)


async def _outcome(reading: Awaitable[ReadRecords]) -> ReadRecords | None:
    """What was read; None when it was refused."""
    try:
        return await reading
    except QuotaExceededError:
        return None
