"""Work for a new leader does not wait for the back-off that the former one earned (SR-15, SR-18)."""

from pathlib import Path

from aquifer_core.segment import CopyResult, RemoteLogSegmentMetadata
from fixtures.manager_segments import Segment, batch
from fixtures.manager_service import manager_bench
from fixtures.manager_world import SimulatedLog, partition
from fixtures.polling import eventually

TIP = partition()
HOUR_MS = 3_600_000


async def test_a_new_leader_epoch_is_worked_for_at_once(tmp_path: Path) -> None:
    async with manager_bench(
        tmp_path, task_retry_backoff_ms=HOUR_MS, task_retry_backoff_max_ms=HOUR_MS
    ) as bench:
        log = bench.broker.add(SimulatedLog(TIP, leader_epoch=1))
        segment = Segment(tip=TIP, batches=[batch(0), batch(99)])
        log.roll(1, size_bytes=len(segment.log))

        async def upload(metadata: RemoteLogSegmentMetadata) -> CopyResult:
            return await bench.storage.copy_log_segment_data(metadata, segment.data())

        bench.broker.upload = upload
        await bench.register()
        await bench.lead(TIP, epoch=0)

        async def all_fail() -> bool:
            tasks = (await bench.describe(TIP)).tasks
            return len(tasks) == 2 and all(each.consecutive_failures for each in tasks)

        await eventually(all_fail, timeout_s=60)

        await bench.lead(TIP, epoch=1)
        await eventually(lambda: log.highest_remote_offset == 99, timeout_s=60)

        async def none_fails() -> bool:
            tasks = (await bench.describe(TIP)).tasks
            return not any(each.consecutive_failures for each in tasks)

        await eventually(none_fails, timeout_s=60)
