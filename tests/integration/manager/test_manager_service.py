"""The manager through gRPC, with a broker behind gRPC, over in-memory roles."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aquifer.common.v1 import partition_pb2 as common
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.errors import (
    InvalidRequestError,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
)
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import (
    CopyResult,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
)
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_rpc import convert
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_service import INCARNATION, ManagerBench, manager_bench
from fixtures.manager_world import START_MS, Fault, Faults, SimulatedLog, faulty, partition
from fixtures.polling import eventually

TIP = partition()


def prepared_log(bench: ManagerBench, tip: TopicIdPartition = TIP) -> SimulatedLog:
    """Two rolled segments of three records; uploads go to the manager's storage."""
    segments = {
        base: Segment(tip=tip, batches=[batch(base + n) for n in range(3)]) for base in (0, 3)
    }
    log = bench.broker.add(SimulatedLog(tip))
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


def run_request(kind: pb.TaskType.ValueType, *, dry_run: bool = False) -> pb.RunTaskRequest:
    return pb.RunTaskRequest(topic_id_partition=convert.tip_to_pb(TIP), type=kind, dry_run=dry_run)


async def test_tasks_run_when_asked_and_answer_what_they_did(bench: ManagerBench) -> None:
    log = prepared_log(bench)
    await bench.register()
    # Otherwise the first expiration may come between the two copies.
    await bench.stub.PauseTasks(pb.PauseTasksRequest(partitions=[convert.tip_to_pb(TIP)]))
    await bench.lead(TIP, retention_ms=1000)
    copied = await bench.stub.RunTask(run_request(pb.TASK_TYPE_COPY))
    assert len(copied.actions) == 2
    assert log.highest_remote_offset == 5
    would = await bench.stub.RunTask(run_request(pb.TASK_TYPE_EXPIRATION, dry_run=True))
    assert [(each.action, each.reason) for each in would.actions] == [
        ("deleted", "RETENTION_TIME")
    ] * 2
    scrubbed = await bench.stub.RunTask(run_request(pb.TASK_TYPE_SCRUB))
    assert list(scrubbed.actions) == []
    done = await bench.stub.RunTask(run_request(pb.TASK_TYPE_EXPIRATION))
    assert len(done.actions) == 2
    assert bench.storage.segment_ids == frozenset()
    assert log.log_start_offset == 6
    with pytest.raises(InvalidRequestError, match="dry run"):
        await bench.stub.RunTask(run_request(pb.TASK_TYPE_COPY, dry_run=True))
    with pytest.raises(InvalidRequestError, match="unknown value"):
        await bench.stub.RunTask(run_request(pb.TASK_TYPE_UNSPECIFIED))


async def test_a_run_that_fails_answers_what_it_failed_with(bench: ManagerBench) -> None:
    prepared_log(bench)
    bench.broker.faults.inject("copy_segment", Fault(times=1000))
    await bench.register()
    await bench.lead(TIP)
    with pytest.raises(RemoteStorageUnavailableError, match="injected fault"):
        await bench.stub.RunTask(run_request(pb.TASK_TYPE_COPY))
    state = await bench.describe(TIP)
    (copy,) = [task for task in state.tasks if task.type == pb.TASK_TYPE_COPY]
    assert copy.last_error_reason == "OBJECT_STORE_UNAVAILABLE"
    assert copy.consecutive_failures > 0


async def test_the_copy_lag_rises_while_copies_fail(bench: ManagerBench) -> None:
    """T03, KAFKA-19995: lag is known whether copies succeed or not."""
    log = prepared_log(bench)
    bench.broker.faults.inject("copy_segment", Fault(times=10**6))
    await bench.register()
    await bench.lead(TIP)

    async def lag() -> tuple[int, int]:
        pages = [page async for page in bench.stub.ListPartitions(pb.ListPartitionsRequest())]
        state = pages[0].partitions[0]
        return state.copy_lag_segments, state.copy_lag_bytes

    size_bytes = sum(segment.size_bytes for segment in log.segments)

    async def shown() -> bool:
        return await lag() == (2, size_bytes)

    await eventually(shown)
    log.roll(1, records=3, size_bytes=1000)

    async def risen() -> bool:
        return await lag() == (3, size_bytes + 1000)

    await eventually(risen)
    assert (await bench.describe(TIP)).copy_lag_ms > 0


async def test_a_pause_holds_until_it_is_resumed(bench: ManagerBench) -> None:
    log = prepared_log(bench)
    topics = [TIP.topic]
    await bench.stub.PauseTasks(pb.PauseTasksRequest(topics=topics))
    await bench.register()
    await bench.lead(TIP)
    assert (await bench.describe(TIP)).paused
    assert log.highest_remote_offset == -1
    await bench.stub.ResumeTasks(pb.ResumeTasksRequest(topics=topics))
    await eventually(lambda: log.highest_remote_offset == 5)


async def test_a_pause_outlives_the_manager_that_was_told_of_it(tmp_path: Path) -> None:
    """An operator who stopped deletions does not find them going on at the next manager (decision 36)."""
    other = partition("others")
    async with manager_bench(tmp_path / "one") as first:
        for tip in (TIP, other):
            prepared_log(first, tip)
        await first.register()
        await first.lead(TIP, other)
        for tip in (TIP, other):
            await eventually(lambda tip=tip: first.broker.logs[tip].highest_remote_offset == 5)
        answer = await first.stub.PauseTasks(
            pb.PauseTasksRequest(topics=[TIP.topic], paused_by="ann", reason="a loss")
        )
        assert answer.durable
    async with manager_bench(
        tmp_path / "two", storage=first.storage, metadata=first.metadata
    ) as second:
        for tip in (TIP, other):
            second.broker.logs[tip] = first.broker.logs[tip]
        await second.register()
        await second.lead(TIP, other, retention_ms=1)
        await eventually(lambda: second.broker.logs[other].log_start_offset == 6)
        state = await second.describe(TIP)
        assert (state.paused, state.pauses[0].paused_by, state.log_start_offset) == (True, "ann", 0)
        assert (await second.stub.ResumeTasks(pb.ResumeTasksRequest(topics=[TIP.topic]))).durable
        await eventually(lambda: second.broker.logs[TIP].log_start_offset == 6)


async def test_a_watch_begins_with_everything_and_tells_changes(bench: ManagerBench) -> None:
    prepared_log(bench)
    await bench.register()
    await bench.lead(TIP)
    watch = bench.stub.WatchPartitions(pb.WatchPartitionsRequest(), timeout=60)
    async for message in watch:
        if message.partitions[0].copied_segments == 2:
            break
    assert message.partitions[0].highest_remote_offset == 5


async def test_stopped_partitions_with_delete_remote_lose_their_remote_data(
    bench: ManagerBench,
) -> None:
    """T20: answered at once, retried until done."""
    log = prepared_log(bench)
    await bench.register()
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 5)
    bench.storage.fail(
        "delete_log_segment_data", *[RemoteStorageUnavailableError("store down")] * 3
    )
    await bench.stub.StopPartitions(
        pb.StopPartitionsRequest(
            broker_id=1, partitions=[convert.tip_to_pb(TIP)], delete_remote=True
        )
    )
    await eventually(lambda: not bench.storage.segment_ids)
    with pytest.raises(RemoteResourceNotFoundError):
        await bench.describe(TIP)


async def test_a_deletion_is_answered_when_metadata_knows_of_it(tmp_path: Path) -> None:
    """T20: a manager that is killed right after the answer loses nothing; without metadata the broker repeats."""
    faults = Faults()
    metadata = faulty(
        InMemoryRemoteLogMetadataManager, faults, ["put_remote_partition_delete_metadata"]
    )
    stop = pb.StopPartitionsRequest(
        broker_id=1, partitions=[convert.tip_to_pb(TIP)], delete_remote=True
    )
    async with manager_bench(tmp_path, metadata=metadata) as bench:
        prepared_log(bench)
        await bench.register()
        await bench.lead(TIP)
        await eventually(lambda: len(bench.storage.segment_ids) == 2)
        faults.inject("put_remote_partition_delete_metadata")
        with pytest.raises(RemoteStorageUnavailableError):
            await bench.stub.StopPartitions(stop)
        assert len(bench.storage.segment_ids) == 2
        with pytest.raises(RemoteResourceNotFoundError):
            await bench.describe(TIP)
        await bench.stub.StopPartitions(stop)
        await eventually(lambda: not bench.storage.segment_ids)


async def test_a_deletion_that_metadata_knows_of_is_done_by_any_manager(tmp_path: Path) -> None:
    """T20: nobody has to ask, and nothing on its disk is needed."""
    storage, metadata = InMemoryRemoteStorageManager(), InMemoryRemoteLogMetadataManager()
    await put(Segment(tip=TIP, batches=[batch(0)]), storage, metadata)

    async def done() -> bool:
        left = [deletion async for deletion in metadata.list_partition_deletions()]
        return not left and not storage.segment_ids

    async with manager_bench(tmp_path, storage=storage, metadata=metadata, task_interval_ms=50):
        await metadata.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                topic_id_partition=TIP,
                state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
                event_timestamp_ms=START_MS,
                broker_id=-1,
            )
        )
        await eventually(done)


async def test_a_broker_without_heartbeat_is_forgotten(tmp_path: Path) -> None:
    async with manager_bench(tmp_path, lease_ms=1000) as bench:
        await bench.register()
        await bench.lead(TIP)

        async def forgotten() -> bool:
            pages = [page async for page in bench.stub.ListPartitions(pb.ListPartitionsRequest())]
            return pages == []

        await eventually(forgotten)
        with pytest.raises(RemoteResourceNotFoundError):
            await bench.stub.Heartbeat(pb.HeartbeatRequest(broker_id=1, incarnation=INCARNATION))


async def test_deleted_records_are_cleaned_asynchronously(bench: ManagerBench) -> None:
    """SR-25."""
    log = prepared_log(bench)
    await bench.register()
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 5)
    log.log_start_offset = log.local_log_start_offset = 4
    await bench.stub.DeleteRecords(
        pb.DeleteRecordsRequest(topic_id_partition=convert.tip_to_pb(TIP), log_start_offset=4)
    )
    await eventually(lambda: len(bench.storage.segment_ids) == 1)


async def test_changed_settings_take_effect_at_once(bench: ManagerBench) -> None:
    log = prepared_log(bench)
    await bench.register()
    await bench.lead(TIP)
    await eventually(lambda: log.highest_remote_offset == 5)
    config = common.TopicConfig(remote_storage_enable=True, retention_ms=1000, retention_bytes=-1)
    await bench.stub.OnTopicConfigChange(
        pb.OnTopicConfigChangeRequest(
            topics=[pb.TopicConfigChange(topic_id=str(TIP.topic_id), config=config)]
        )
    )
    await eventually(lambda: not bench.storage.segment_ids)


async def test_an_upload_without_progress_is_given_up(tmp_path: Path) -> None:
    """T01: hang mid-upload; the copy is taken back and tried again."""
    async with manager_bench(tmp_path, copy_stall_timeout_ms=500) as bench:
        log = prepared_log(bench)
        upload = bench.broker.upload
        assert upload is not None
        hung: list[RemoteLogSegmentMetadata] = []

        async def hanging_once(metadata: RemoteLogSegmentMetadata) -> CopyResult:
            if not hung:
                hung.append(metadata)
                await asyncio.Event().wait()
            return await upload(metadata)

        bench.broker.upload = hanging_once
        await bench.register()
        await bench.lead(TIP)
        await eventually(lambda: log.highest_remote_offset == 5)
        assert len(hung) == 1
        await bench.stub.RunTask(run_request(pb.TASK_TYPE_EXPIRATION))
        states = {each.state async for each in bench.metadata.list_remote_log_segments(TIP)}
        assert states == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}


async def test_a_frozen_broker_does_not_hold_up_the_partitions_of_the_others(
    tmp_path: Path,
) -> None:
    """Its tasks fail at once after the first that waited; its own are tried again and again."""
    settings: dict[str, Any] = {
        "thread_pool_size": 1,
        "broker_call_timeout_ms": 500,
        "task_retry_backoff_max_ms": 100,
    }
    async with manager_bench(tmp_path, **settings) as bench:
        log = prepared_log(bench)
        frozen = [partition("frozen", number) for number in range(200)]
        with socket.create_server(("127.0.0.1", 0)) as silent:
            await bench.register(2, f"127.0.0.1:{silent.getsockname()[1]}")
            await bench.lead(*frozen, broker_id=2)

            async def first_failed() -> bool:
                state = await bench.describe(frozen[0])
                return any(task.consecutive_failures for task in state.tasks)

            await eventually(first_failed)
            await bench.register()
            await bench.lead(TIP)
            await eventually(lambda: log.highest_remote_offset == 5)
            state = await bench.describe(frozen[-1])
            reasons = {task.last_error_reason for task in state.tasks}
            assert reasons <= {"PEER_UNAVAILABLE", "DEADLINE_EXCEEDED", ""}
