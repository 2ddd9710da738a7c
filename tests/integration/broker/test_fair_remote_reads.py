"""A client that asks for very much of the cold part does not starve another one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.remote_log import RemoteRead, RemoteReadRequest
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_core.errors import QuotaExceededError
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill

_MAX_READS = 8


class _SlowStorage(InMemoryRemoteStorageManager):
    """Begins reads and goes on with them when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.begun: list[int] = []

    async def fetch_records(
        self, metadata: Any, fetch_offset: int, *args: Any, **kwargs: Any
    ) -> AsyncIterator[bytes | memoryview]:
        self.begun.append(fetch_offset)
        await self.go.wait()
        async for piece in super().fetch_records(metadata, fetch_offset, *args, **kwargs):
            yield piece


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[TieredBroker, _SlowStorage]]:
    """A broker that reads little at once, and its manager, over a storage that waits."""
    made = TieredBroker(tmp_path)
    made.storage = storage = _SlowStorage()
    made.properties["remote.log.reader.max.pending.tasks"] = str(_MAX_READS)
    await made.start_manager()
    await made.start()
    yield made, storage
    storage.go.set()
    await made.stop()
    await made.stop_manager()


async def test_a_client_that_asks_for_very_much_leaves_reads_to_another(
    slow: tuple[TieredBroker, _SlowStorage],
) -> None:
    """T52: a fair split between clients."""
    broker, storage = slow
    hosted = await broker.create()
    await fill(hosted, 3)
    await broker.copied(hosted, 29)
    greedy, modest = object(), object()

    async with asyncio.TaskGroup() as group:
        much = [group.create_task(_read(broker, hosted, at, greedy)) for at in range(20)]
        await eventually(lambda: sum(task.done() for task in much) == 20 - len(storage.begun) > 0)
        begun = len(storage.begun)
        little = group.create_task(_read(broker, hosted, 25, modest))
        await eventually(lambda: 25 in storage.begun)
        storage.go.set()

    assert 0 < begun < _MAX_READS
    refused = [task.result() for task in much if _refused(task.result())]
    assert len(refused) == 20 - begun
    assert 0 not in refused
    assert not _refused(little.result())


def _refused(outcome: RemoteRead | int) -> bool:
    return isinstance(outcome, int)


async def _read(
    broker: TieredBroker, hosted: HostedPartition, offset: int, reader: object
) -> RemoteRead | int:
    """What came, or for how many ms the client is throttled."""
    request = RemoteReadRequest(
        log=hosted.log,
        leader_epoch=hosted.leader_epoch,
        fetch_offset=offset,
        max_bytes=1,
        min_one_batch=True,
        isolation=FetchIsolation.HIGH_WATERMARK,
        reader=reader,
    )
    try:
        return await broker.tiering.remote_log.read(request)
    except QuotaExceededError as error:
        return error.retry_after_ms or 0
