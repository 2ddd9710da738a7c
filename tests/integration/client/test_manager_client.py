"""The client of the manager against a real one over in-memory roles."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aquifer_client import RemoteLogManagerClient, TaskType
from aquifer_core.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import ManagerBench, manager_bench
from fixtures.manager_world import SimulatedLog, partition
from fixtures.polling import eventually

TIP = partition()
READ: dict[str, Any] = {"leader_epoch": 0, "max_bytes": 1 << 20, "lineage": {0: 0}}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ManagerBench]:
    async with manager_bench(tmp_path) as made:
        yield made


@pytest.fixture
async def client(bench: ManagerBench) -> AsyncIterator[RemoteLogManagerClient]:
    async with RemoteLogManagerClient.connect(f"127.0.0.1:{bench.manager.server.port}") as made:
        yield made


async def _two_segments(bench: ManagerBench) -> None:
    await put(Segment(tip=TIP, batches=[batch(0), batch(1)]), bench.storage, bench.metadata)
    await put(Segment(tip=TIP, batches=[batch(2)]), bench.storage, bench.metadata)


async def _led(bench: ManagerBench) -> None:
    bench.broker.add(SimulatedLog(TIP))
    await bench.register()
    await bench.lead(TIP)


async def test_the_cold_part_is_read_as_whole_batches(
    bench: ManagerBench, client: RemoteLogManagerClient
) -> None:
    await _two_segments(bench)

    pieces = [piece async for piece in client.fetch(TIP, fetch_offset=1, **READ)]

    assert b"".join(pieces) == batch(1)


async def test_a_plan_names_the_segment_and_the_next_one(
    bench: ManagerBench, client: RemoteLogManagerClient
) -> None:
    await _two_segments(bench)

    plan = await client.plan_fetch(TIP, fetch_offset=1, **READ)

    assert plan.segment is not None
    assert plan.next_segment is not None
    assert (plan.segment.start_offset, plan.next_segment.start_offset) == (0, 2)
    assert (plan.fetch_offset, plan.aborted_transactions) == (1, ())


async def test_an_offset_that_is_not_remote_is_out_of_range(
    client: RemoteLogManagerClient,
) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        await anext(client.fetch(TIP, fetch_offset=7, **READ))


async def test_an_offset_is_found_by_time_or_not_at_all(
    bench: ManagerBench, client: RemoteLogManagerClient
) -> None:
    await _two_segments(bench)
    question: dict[str, Any] = {
        "lineage": {0: 0},
        "log_start_offset": 0,
        "local_log_start_offset": 100,
    }

    first = await client.find_offset_for_timestamp(TIP, timestamp_ms=0, **question)
    none = await client.find_offset_for_timestamp(TIP, timestamp_ms=1 << 60, **question)

    assert first is not None
    assert (first.offset, first.leader_epoch) == (0, 0)
    assert none is None


async def test_partitions_are_described_listed_and_watched(
    bench: ManagerBench, client: RemoteLogManagerClient
) -> None:
    await _led(bench)
    await eventually(lambda: _has_tasks(client))

    described = await client.describe_partition(TIP)
    listed = [state async for state in client.list_partitions(TIP.topic)]
    watch: Any = client.watch_partitions()
    async with aclosing(watch):
        watched = await anext(watch)

    assert described.topic_id_partition == TIP
    assert (described.leader, described.leader_broker_id, described.paused) == (True, 1, False)
    assert described.highest_remote_offset is None
    assert {task.type for task in described.tasks} == {TaskType.COPY, TaskType.EXPIRATION}
    assert [state.topic_id_partition for state in listed] == [TIP]
    assert watched.topic_id_partition == TIP
    assert [state async for state in client.list_partitions("another")] == []


async def _has_tasks(client: RemoteLogManagerClient) -> bool:
    return len((await client.describe_partition(TIP)).tasks) == 2


async def test_tasks_are_paused_resumed_and_run(
    bench: ManagerBench, client: RemoteLogManagerClient
) -> None:
    await _led(bench)

    await client.pause_tasks(topics=[TIP.topic])
    assert (await client.describe_partition(TIP)).paused
    await client.resume_tasks(topics=[TIP.topic])
    assert not (await client.describe_partition(TIP)).paused
    assert await client.run_task(TIP, TaskType.EXPIRATION, dry_run=True) == ()


async def test_a_partition_that_is_not_registered_is_not_found(
    client: RemoteLogManagerClient,
) -> None:
    unknown = TopicIdPartition(KafkaUuid.random(), "unknown", 0)

    with pytest.raises(RemoteResourceNotFoundError):
        await client.describe_partition(unknown)
