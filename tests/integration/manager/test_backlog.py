"""A backlog of one partition through a manager service, with its broker behind gRPC (SR-16, SR-22)."""

from pathlib import Path

from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_rpc import convert
from fixtures.gated_uploads import GatedUploads
from fixtures.manager_segments import Segment, batch
from fixtures.manager_service import ManagerBench, manager_bench
from fixtures.manager_world import SimulatedLog, partition
from fixtures.polling import eventually

TIP = partition()


def rolled(bench: ManagerBench, count: int) -> SimulatedLog:
    """A log of segments of two records; uploads go to the manager's storage."""

    def segment(start: int) -> Segment:
        return Segment(tip=TIP, batches=[batch(start), batch(start + 1)])

    log = bench.broker.add(SimulatedLog(TIP))
    log.roll(count, records=2, size_bytes=len(segment(0).log))

    async def upload(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        data = segment(metadata.start_offset).data()
        return await bench.storage.copy_log_segment_data(metadata, data)

    bench.broker.upload = upload
    return log


async def states(metadata: InMemoryRemoteLogMetadataManager) -> list[tuple[int, str]]:
    return [
        (each.start_offset, each.state.name)
        async for each in metadata.list_remote_log_segments(TIP)
    ]


async def test_uploads_that_end_in_any_order_are_finished_in_the_order_of_offsets(
    tmp_path: Path,
) -> None:
    async with manager_bench(tmp_path, copy_segments_at_once=3) as bench:
        log, uploads = rolled(bench, 5), GatedUploads(bench.broker)
        await bench.register()
        await bench.lead(TIP)
        await uploads.until(0, 2, 4)
        await uploads.end(4, 2)
        await uploads.until(0, 6, 8)
        await uploads.end(8)
        await eventually(lambda: len(bench.storage.segment_ids) == 3)
        assert {state for _, state in await states(bench.metadata)} == {"COPY_SEGMENT_STARTED"}
        state = await bench.describe(TIP)
        assert (state.highest_remote_offset, log.highest_remote_offset) == (-1, -1)
        assert state.copy_lag_segments == 5
        await uploads.end(0)
        await eventually(lambda: log.highest_remote_offset >= 1)
        await uploads.end(6)
        await eventually(lambda: log.highest_remote_offset == 9)
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED.name
        assert await states(bench.metadata) == [(start, finished) for start in range(0, 10, 2)]
        assert (await bench.describe(TIP)).copy_lag_segments == 0


async def test_a_manager_stopped_in_the_middle_of_a_backlog_leaves_nothing_dangling(
    tmp_path: Path,
) -> None:
    """T16: what was uploading and what was stored, but not its turn yet, is taken back by the next manager and copied again."""
    storage, metadata = InMemoryRemoteStorageManager(), InMemoryRemoteLogMetadataManager()
    async with manager_bench(tmp_path, storage=storage, metadata=metadata) as bench:
        rolled(bench, 5)
        uploads = GatedUploads(bench.broker)
        await bench.register()
        await bench.lead(TIP)
        await uploads.until(0, 2, 4)
        await uploads.end(4)
        await uploads.until(0, 2, 6)
    assert len(storage.segment_ids) == 1
    async with manager_bench(tmp_path, storage=storage, metadata=metadata) as bench:
        log = rolled(bench, 5)
        await bench.register()
        await bench.lead(TIP)
        await eventually(lambda: log.highest_remote_offset == 9)
        expiration = pb.RunTaskRequest(
            topic_id_partition=convert.tip_to_pb(TIP), type=pb.TASK_TYPE_EXPIRATION
        )
        await bench.stub.RunTask(expiration)
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED.name
        assert await states(metadata) == [(start, finished) for start in range(0, 10, 2)]
        assert len(storage.segment_ids) == 5
