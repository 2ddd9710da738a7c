"""The manager through gRPC, with a broker behind gRPC, over in-memory roles."""

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_rpc import convert
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import INCARNATION, ManagerBench
from fixtures.manager_world import SimulatedLog, partition
from fixtures.polling import eventually

TIP = partition()


def prepared_log(bench: ManagerBench) -> SimulatedLog:
    """Two rolled segments of three records; uploads go to the manager's storage."""
    segments = {
        base: Segment(tip=TIP, batches=[batch(base + n) for n in range(3)]) for base in (0, 3)
    }
    log = bench.broker.add(SimulatedLog(TIP))
    log.roll(2, records=3, size_bytes=len(segments[0].log))

    async def upload(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        return await bench.storage.copy_log_segment_data(
            metadata, segments[metadata.start_offset].data()
        )

    bench.broker.upload = upload
    return log


async def test_rolled_segments_are_copied_and_read_back(bench: ManagerBench) -> None:
    """SR-15, SR-16: announce, copy, tell the broker, fetch."""
    log = prepared_log(bench)
    answer = await bench.register()
    assert answer.lease_ms == 30_000
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 5)
    request = pb.FetchRequest(
        topic_id_partition=convert.tip_to_pb(TIP),
        leader_epoch=0,
        fetch_offset=4,
        max_bytes=1000,
        min_one_batch=True,
        lineage=convert.lineage_to_pb({0: 0}),
    )
    messages = [message async for message in bench.stub.Fetch(request)]
    assert messages[0].plan.segment.start_offset == 3
    assert b"".join(message.data for message in messages[1:]) == batch(4) + batch(5)


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


async def test_an_unknown_broker_is_told_to_register(bench: ManagerBench) -> None:
    with pytest.raises(RemoteResourceNotFoundError, match="not registered"):
        await bench.stub.Heartbeat(pb.HeartbeatRequest(broker_id=9, incarnation=INCARNATION))


async def test_a_heartbeat_with_rolled_segments_copies_them_before_the_interval(
    bench: ManagerBench,
) -> None:
    log = prepared_log(bench)
    second = log.segments.pop()
    log.log_end_offset = log.last_stable_offset = 3
    await bench.register()
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 2)
    log.segments.append(second)
    log.log_end_offset = log.last_stable_offset = 6
    await bench.stub.Heartbeat(
        pb.HeartbeatRequest(broker_id=1, incarnation=INCARNATION, rolled=[convert.tip_to_pb(TIP)])
    )
    await eventually(lambda: log.highest_remote_offset == 5)


async def test_a_partition_is_described_with_offsets_lag_and_tasks(bench: ManagerBench) -> None:
    log = prepared_log(bench)
    await bench.register()
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 5)
    state = await bench.describe(TIP)
    assert (state.leader_broker_id, state.leader) == (1, True)
    assert (state.log_start_offset, state.highest_remote_offset, state.log_end_offset) == (0, 5, 6)
    assert (state.copied_segments, state.copy_lag_segments) == (2, 0)
    assert {task.type for task in state.tasks} == {pb.TASK_TYPE_COPY, pb.TASK_TYPE_EXPIRATION}
    pages = [page async for page in bench.stub.ListPartitions(pb.ListPartitionsRequest())]
    assert [len(page.partitions) for page in pages] == [1]
