import asyncio
from contextlib import aclosing

import pytest
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.tiering.segment_upload import upload_segment
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.segment import CopyResult, LogSegmentData, RemoteLogSegmentMetadata
from fixtures.broker_logs import LogWorkshop, client_batch


class _Blocked(InMemoryRemoteStorageManager):
    """Takes the bytes of a copy, then waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.cancelled = False
        self.error: Exception | None = None

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CopyResult:
        async for _ in data.log_segment.chunks():
            pass
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return CopyResult(custom_metadata=b"x", stored_bytes=1, log_sha256="")


async def _rolled(workshop: LogWorkshop) -> tuple[PartitionLog, RemoteLogSegmentMetadata]:
    log = await workshop.open()
    await log.append(client_batch(10), leader_epoch=0)
    await log.roll_active()
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(log.topic_id_partition),
        start_offset=0,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        segment_size_bytes=log.size_bytes,
        segment_leader_epochs={0: 0},
    )
    return log, metadata


async def test_an_upload_tells_its_progress_and_then_its_result(workshop: LogWorkshop) -> None:
    log, metadata = await _rolled(workshop)
    storage = _Blocked()
    steps: list[int | CopyResult] = []
    async with log.segment_data(0) as data:
        async for step in upload_segment(storage, metadata, data):
            steps.append(step)
            storage.go.set()

    assert steps[0] == log.size_bytes
    assert isinstance(steps[-1], CopyResult)


async def test_giving_an_upload_up_cancels_it(workshop: LogWorkshop) -> None:
    log, metadata = await _rolled(workshop)
    storage = _Blocked()
    async with (
        log.segment_data(0) as data,
        aclosing(upload_segment(storage, metadata, data)) as steps,
    ):
        await anext(steps)

    assert storage.cancelled


async def test_a_failed_upload_fails_whoever_asked(workshop: LogWorkshop) -> None:
    log, metadata = await _rolled(workshop)
    storage = _Blocked()
    storage.error = RemoteStorageUnavailableError("away")
    storage.go.set()
    async with log.segment_data(0) as data:
        with pytest.raises(RemoteStorageUnavailableError):
            async for _ in upload_segment(storage, metadata, data):
                pass
