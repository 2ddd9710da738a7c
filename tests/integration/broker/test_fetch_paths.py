"""Both ways to the records of a cold read give the same."""

from collections.abc import AsyncIterator, Callable

import pytest
from aquifer_broker.tiering.fetch_paths import DirectFetchPath, FetchPath, ManagerFetchPath
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.remote_fetch import RemoteFetch
from aquifer_core.errors import OffsetOutOfRangeError
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import IsolationLevel
from aquifer_rpc.channel import connect
from fixtures.manager_segments import Segment, batch, put
from fixtures.tiered_broker import TieredBroker, partition_of

TIP = partition_of("events")


@pytest.fixture(params=["direct", "manager"])
async def path(tiered: TieredBroker, request: pytest.FixtureRequest) -> AsyncIterator[FetchPath]:
    async with connect(f"127.0.0.1:{tiered.manager.server.port}") as channel:
        manager = ManagerClient(channel, broker_id=1, incarnation=KafkaUuid.random())
        paths: dict[str, Callable[[], FetchPath]] = {
            "direct": lambda: DirectFetchPath(manager, tiered.storage),
            "manager": lambda: ManagerFetchPath(manager),
        }
        yield paths[request.param]()


def _fetch(offset: int, max_bytes: int = 1 << 20, *, min_one_batch: bool = True) -> RemoteFetch:
    return RemoteFetch(
        topic_id_partition=TIP,
        leader_epoch=0 if offset < 10 else 1,
        fetch_offset=offset,
        max_bytes=max_bytes,
        min_one_batch=min_one_batch,
        isolation=IsolationLevel.READ_COMMITTED,
        lineage=((0, 0), (1, 10)),
        local_log_start_offset=20,
    )


async def _put(tiered: TieredBroker, *batches: bytes, end_offset: int, epoch: int) -> None:
    first = next(iter_batches(batches[0])).base_offset
    segment = Segment(tip=TIP, batches=batches, end_offset=end_offset, epochs={epoch: first})
    await put(segment, tiered.storage, tiered.metadata)


async def _offsets(path: FetchPath, request: RemoteFetch) -> list[int]:
    fetched = await path.fetch(request, 30)
    return [each.base_offset for each in iter_batches(b"".join(fetched.pieces))]


async def test_a_read_gives_whole_batches_of_one_segment(
    tiered: TieredBroker, path: FetchPath
) -> None:
    await _put(tiered, batch(0, 3), batch(3, 3), end_offset=5, epoch=0)
    size_bytes = len(batch(0, 3))

    assert await _offsets(path, _fetch(0)) == [0, 3]
    assert await _offsets(path, _fetch(4)) == [3]
    assert await _offsets(path, _fetch(0, size_bytes + 1)) == [0]
    assert await _offsets(path, _fetch(0, 1)) == [0]
    assert await _offsets(path, _fetch(0, 1, min_one_batch=False)) == []


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
async def test_a_hole_at_the_end_of_a_segment_leads_into_the_next(
    tiered: TieredBroker, path: FetchPath, max_bytes: int
) -> None:
    """SR-23: a consumer that asks for an offset in the hole would ask for it for ever."""
    await _put(tiered, batch(0, 3), end_offset=9, epoch=0)
    await _put(tiered, batch(10, 2, epoch=1), end_offset=19, epoch=1)

    assert await _offsets(path, _fetch(5, max_bytes)) == [10]
    assert await _offsets(path, _fetch(5, min_one_batch=False)) == [10]


async def test_a_hole_at_the_end_of_what_is_remote_is_told(
    tiered: TieredBroker, path: FetchPath
) -> None:
    await _put(tiered, batch(10, 2, epoch=1), end_offset=19, epoch=1)

    fetched = await path.fetch(_fetch(15), 30)

    assert fetched.plan.segment is None
    assert not fetched.pieces


async def test_an_offset_that_is_not_remote_is_refused(
    tiered: TieredBroker, path: FetchPath
) -> None:
    await _put(tiered, batch(0, 3), end_offset=2, epoch=0)

    with pytest.raises(OffsetOutOfRangeError):
        await path.fetch(_fetch(5), 30)
