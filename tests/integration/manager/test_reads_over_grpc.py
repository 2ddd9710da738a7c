"""Remote reads through gRPC, over in-memory roles (SR-19, SR-23, SR-26)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aquifer.common.v1 import partition_pb2 as common
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.errors import (
    ErrorReason,
    OffsetOutOfRangeError,
    QuotaExceededError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_rpc import convert
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import ManagerBench, manager_bench
from fixtures.manager_world import START_MS, partition
from fixtures.polling import eventually

TIP = partition()


async def test_plan_fetch_names_the_segment_and_the_next_one(bench: ManagerBench) -> None:
    first = Segment(tip=TIP, batches=[batch(0), batch(1)])
    second = Segment(tip=TIP, batches=[batch(2)])
    await put(first, bench.storage, bench.metadata)
    await put(second, bench.storage, bench.metadata)
    request = pb.PlanFetchRequest(
        topic_id_partition=convert.tip_to_pb(TIP),
        fetch_offset=1,
        max_bytes=1000,
        lineage=convert.lineage_to_pb({0: 0}),
    )
    plan = (await bench.stub.PlanFetch(request)).plan
    assert (plan.segment.start_offset, plan.next_segment.start_offset) == (0, 2)
    assert "fetch_records" not in bench.storage.calls


async def test_an_offset_that_is_not_remote_is_out_of_range(bench: ManagerBench) -> None:
    request = pb.FetchRequest(
        topic_id_partition=convert.tip_to_pb(TIP), fetch_offset=7, max_bytes=10
    )
    with pytest.raises(OffsetOutOfRangeError):
        _ = [message async for message in bench.stub.Fetch(request)]


def fetch_request(offset: int, **kwargs: Any) -> pb.FetchRequest:
    given: dict[str, Any] = {
        "topic_id_partition": convert.tip_to_pb(TIP),
        "fetch_offset": offset,
        "max_bytes": 1 << 20,
        "min_one_batch": True,
        "lineage": convert.lineage_to_pb({0: 0}),
        **kwargs,
    }
    return pb.FetchRequest(**given)


async def fetched(bench: ManagerBench, request: pb.FetchRequest, timeout_s: float = 60.0) -> bytes:
    stream = bench.stub.Fetch(request, timeout=timeout_s)
    return b"".join([message.data async for message in stream])


async def test_record_bytes_come_in_messages_of_at_most_one_mebibyte(bench: ManagerBench) -> None:
    large = batch(0, value=b"x" * 2_500_000)
    await put(Segment(tip=TIP, batches=[large]), bench.storage, bench.metadata)
    messages = [message async for message in bench.stub.Fetch(fetch_request(0))]
    assert max(len(message.data) for message in messages) == 1 << 20
    assert b"".join(message.data for message in messages) == large


async def test_aborted_transactions_travel_with_the_plan(bench: ManagerBench) -> None:
    """K-3.8."""
    entry = AbortedTransaction(producer_id=7, first_offset=0, last_offset=1, last_stable_offset=2)
    await put(
        Segment(tip=TIP, batches=[batch(0), batch(1)], aborted=[entry]),
        bench.storage,
        bench.metadata,
    )
    request = fetch_request(0, isolation_level=common.ISOLATION_LEVEL_READ_COMMITTED)
    messages = [message async for message in bench.stub.Fetch(request)]
    found = [
        (each.producer_id, each.first_offset) for each in messages[0].plan.aborted_transactions
    ]
    assert found == [(7, 0)]


async def test_a_store_that_is_down_is_unavailable_and_the_manager_serves_on(
    bench: ManagerBench,
) -> None:
    """SR-36: the error says what is down; announcements are still answered."""
    await put(Segment(tip=TIP, batches=[batch(0)]), bench.storage, bench.metadata)
    bench.storage.fail("fetch_records", *[RemoteStorageUnavailableError("store down")] * 100)
    with pytest.raises(RemoteStorageUnavailableError, match="store down"):
        await fetched(bench, fetch_request(0), timeout_s=3)
    await bench.register()
    await bench.lead(TIP)
    assert bench.manager.server.ready


async def test_a_segment_deleted_meanwhile_is_not_found(bench: ManagerBench) -> None:
    """SR-23."""
    segment = await put(Segment(tip=TIP, batches=[batch(0)]), bench.storage, bench.metadata)
    await bench.storage.delete_log_segment_data(segment)
    with pytest.raises(RemoteResourceNotFoundError):
        await fetched(bench, fetch_request(0))


async def test_a_full_reader_queue_is_resource_exhausted_with_a_delay(tmp_path: Path) -> None:
    """SR-9 through the wire."""
    release = asyncio.Event()

    class Slow(InMemoryRemoteStorageManager):
        async def fetch_records(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for piece in super().fetch_records(*args, **kwargs):
                await release.wait()
                yield piece

    limits: dict[str, Any] = {"reader_threads": 1, "reader_max_pending_tasks": 1}
    async with (
        manager_bench(tmp_path, storage=Slow(), **limits) as bench,
        asyncio.TaskGroup() as group,
    ):
        await put(Segment(tip=TIP, batches=[batch(0)]), bench.storage, bench.metadata)
        reads = [group.create_task(fetched(bench, fetch_request(0))) for _ in range(2)]

        await eventually(lambda: bench.manager.readers() == (1, 1))
        with pytest.raises(QuotaExceededError) as raised:
            await bench.stub.PlanFetch(
                pb.PlanFetchRequest(topic_id_partition=convert.tip_to_pb(TIP), max_bytes=1)
            )
        assert raised.value.reason is ErrorReason.READER_QUEUE_FULL
        assert raised.value.retry_after_ms is not None
        release.set()
        assert [await read for read in reads] == [batch(0), batch(0)]


async def test_an_offset_is_found_by_time(bench: ManagerBench) -> None:
    """SR-26."""
    await put(
        Segment(tip=TIP, batches=[batch(0, 3, timestamp_ms=START_MS)]),
        bench.storage,
        bench.metadata,
    )

    async def find(timestamp_ms: int) -> pb.FindOffsetForTimestampResponse:
        return await bench.stub.FindOffsetForTimestamp(
            pb.FindOffsetForTimestampRequest(
                topic_id_partition=convert.tip_to_pb(TIP),
                lineage=convert.lineage_to_pb({0: 0}),
                timestamp_ms=timestamp_ms,
                local_log_start_offset=100,
            )
        )

    found = await find(START_MS + 1)
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, START_MS + 1, 0)
    assert not (await find(START_MS + 99)).HasField("offset")
