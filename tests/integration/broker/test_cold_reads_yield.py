"""Remote reads give way to hot traffic while the event loop is late, and go on all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.hot_traffic import HotTraffic
from aquifer_broker.handlers.remote_log import RemoteReadRequest
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.tiering.read_yield import ReadYield
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill

_READERS = 6
_OFFSETS = range(0, 30, 2)


class _CountingStorage(InMemoryRemoteStorageManager):
    """Knows how many reads it was asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.most_reads = 0

    async def fetch_records(
        self, metadata: Any, fetch_offset: int, *args: Any, **kwargs: Any
    ) -> AsyncIterator[bytes | memoryview]:
        self.reads += 1
        self.most_reads = max(self.most_reads, self.reads)
        try:
            # Others that may read begin to meanwhile.
            for _ in range(20):
                await asyncio.sleep(0)
            async for piece in super().fetch_records(metadata, fetch_offset, *args, **kwargs):
                yield piece
        finally:
            self.reads -= 1


class _World:
    """A broker whose lateness and hot traffic are what the test says."""

    def __init__(self, root: Path) -> None:
        self.now_s = 0.0
        self.late_s = 0.0
        self.storage = _CountingStorage()
        self.broker = TieredBroker(root)
        self.broker.storage = self.storage
        self.broker.hot = HotTraffic(lambda: self.now_s)
        self.broker.make_yield = partial(ReadYield, delay_s=self._delay_s, cheap_bytes_per_s=0)
        self.broker.properties["aquifer.remote.fetch.read.ahead.bytes"] = "0"
        self.hosted: HostedPartition

    async def _delay_s(self) -> float:
        await asyncio.sleep(0.001)
        return self.late_s

    @property
    def read_yield(self) -> ReadYield:
        read_yield = self.broker.tiering.read_yield
        assert read_yield is not None
        return read_yield

    @property
    def limit(self) -> float:
        return self.read_yield.limit

    async def read_all(self, number: int) -> list[int]:
        """The sizes of what a client gets that reads what is remote, batch by batch, each client from elsewhere on.

        Clients that read the same would share one read.
        """
        sizes, reader = [], f"reader {number}"
        for step in range(len(_OFFSETS)):
            offset = _OFFSETS[(step + 2 * number) % len(_OFFSETS)]
            read = await self.broker.tiering.remote_log.read(self._request(offset, reader))
            sizes.append(len(read.records))
        return sizes

    @asynccontextmanager
    async def readers(self) -> AsyncIterator[None]:
        """Clients that read again and again."""

        async def read_on(number: int) -> None:
            while True:
                await self.read_all(number)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read_on(number)) for number in range(_READERS)]
            yield
            for task in tasks:
                task.cancel()

    def _request(self, offset: int, reader: object) -> RemoteReadRequest:
        return RemoteReadRequest(
            log=self.hosted.log,
            leader_epoch=self.hosted.leader_epoch,
            fetch_offset=offset,
            max_bytes=1,
            min_one_batch=True,
            isolation=FetchIsolation.HIGH_WATERMARK,
            reader=reader,
        )


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[_World]:
    made = _World(tmp_path)
    key = "aquifer.remote.fetch.max.loop.delay.ms"
    made.broker.properties[key] = getattr(request, "param", "2")
    await made.broker.start_manager()
    await made.broker.start()
    made.hosted = await made.broker.create()
    await fill(made.hosted, 3)
    await made.broker.copied(made.hosted, 29)
    yield made
    await made.broker.stop()
    await made.broker.stop_manager()


async def test_a_late_loop_beside_hot_traffic_leaves_one_read_at_a_time_and_all_of_them_go_on(
    world: _World,
) -> None:
    world.late_s = 0.05
    async with world.readers():
        await eventually(lambda: world.storage.most_reads > 1)
        assert world.limit == float("inf")
        world.broker.hot.seen()
        # What was under way before is let finish.
        await eventually(lambda: world.limit == 1 and world.read_yield.places.used <= 1)
    world.storage.most_reads = 0

    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(world.read_all(number)) for number in range(_READERS)]

    assert world.storage.most_reads == 1
    for task in reading:
        assert len(task.result()) == len(_OFFSETS)
        assert all(task.result())

    world.late_s = 0.0
    async with world.readers():
        await eventually(lambda: 1 < world.limit < float("inf"))
        world.now_s += 10
        assert world.limit == float("inf")


@pytest.mark.parametrize("world", ["0"], indirect=True)
async def test_reads_that_are_not_to_give_way_never_do(world: _World) -> None:
    assert world.broker.tiering.read_yield is None
    world.late_s = 0.05
    world.broker.hot.seen()
    async with world.readers():
        await eventually(lambda: world.storage.most_reads > 1)
