"""Readers with little patience behind a store with much latency."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.remote_log import RemoteReadRequest
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_core.formats.record_batch import iter_batches
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from fixtures.hooked_object_store import HookedObjectStore
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill

LATENCY_S = 2.0
WAIT_S = 0.5
"""`remote.fetch.max.wait.ms` by default."""


class SlowReads:
    """Every request that reads takes long, once `latency_s` is set."""

    latency_s = 0.0

    async def before(self, operation: str, key: str) -> None:
        if operation in ("get", "read"):
            await asyncio.sleep(self.latency_s)


@pytest.fixture
def slow() -> SlowReads:
    return SlowReads()


@pytest.fixture
def objects(tmp_path: Path, slow: SlowReads) -> HookedObjectStore:
    return HookedObjectStore(FilesystemObjectStore(tmp_path / "segments"), slow.before)


@pytest.fixture(params=["manager", "direct"])
async def tiered(
    request: pytest.FixtureRequest, tmp_path: Path, objects: HookedObjectStore
) -> AsyncIterator[TieredBroker]:
    made = TieredBroker(tmp_path)
    made.properties["aquifer.remote.fetch.path"] = request.param
    made.storage = cast(
        Any, RemoteStorage(objects, options=StorageOptions(), writer_version="test")
    )
    await made.start_manager()
    await made.start()
    yield made
    await made.stop()
    await made.stop_manager()


async def fetched(tiered: TieredBroker, hosted: HostedPartition, offset: int) -> bytes:
    """The answer of one fetch: nothing when its wait is over."""
    request = RemoteReadRequest(
        log=hosted.log,
        leader_epoch=hosted.leader_epoch,
        fetch_offset=offset,
        max_bytes=1 << 20,
        min_one_batch=True,
        isolation=FetchIsolation.HIGH_WATERMARK,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            read = await tiered.tiering.remote_log.read(request)
    except TimeoutError:
        return b""
    pieces = getattr(read.records, "pieces", None)
    return b"".join(pieces if pieces is not None else [cast(bytes, read.records)])


async def test_a_reader_progresses_though_each_request_takes_longer_than_it_waits(
    tiered: TieredBroker, objects: HookedObjectStore, slow: SlowReads
) -> None:
    """SR-19: a read that its fetch gave up goes on, and a later fetch finds what it brought."""
    hosted = await tiered.create()
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)
    await eventually(lambda: hosted.log.local_log_start_offset >= 10, timeout_s=60)
    slow.latency_s = LATENCY_S
    before = objects.count("read", ".log")
    offset, given_up, offsets = 0, 0, []
    async with asyncio.timeout(120):
        while offset < 10:
            records = await fetched(tiered, hosted, offset)
            given_up += not records
            for batch in iter_batches(records):
                offsets.append(batch.base_offset)
                offset = batch.next_offset
    assert offsets == list(range(0, 10, 2))
    assert given_up >= 2, "a request takes as long as several waits"
    assert objects.count("read", ".log") - before == 1, "the chunk was asked for once"
