"""The storage service as a process: killed, bounded, honest about damage, traced."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import builders
import psutil
import pytest
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.errors import AquiferError, CorruptSegmentError
from aquifer_rpc.health_check import check
from aquifer_standalone.ports import hold_port
from aquifer_storage.adapters.s3_client import S3Client, S3Options
from aquifer_storage.domain.options import MIB
from contract.remote_storage_manager import copied, joined
from fixtures.object_store import S3Endpoint
from fixtures.otlp import OtlpCollector
from fixtures.polling import eventually


@dataclass(slots=True)
class Service:
    """A storage service that runs as a process, and a client of it."""

    environment: Mapping[str, str]
    port: int
    process: asyncio.subprocess.Process
    client: GrpcRemoteStorageManager

    async def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        await self.process.wait()

    async def start(self) -> None:
        """Start, again if need be, and wait until it is ready."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aquifer_storage", env=dict(os.environ) | dict(self.environment)
        )
        await eventually(self._is_ready, timeout_s=60)

    async def _is_ready(self) -> bool:
        return await check(f"127.0.0.1:{self.port}", deadline_s=1) is None


@asynccontextmanager
async def running(s3: S3Endpoint, bucket: str, **settings: str) -> AsyncIterator[Service]:
    """A service over a bucket; settings are variables without their prefix."""
    with hold_port() as port:
        number = port.number
    environment = {
        "GRPC__LISTEN": f"127.0.0.1:{number}",
        "S3__ENDPOINT": s3.endpoint,
        "S3__BUCKET": bucket,
        "S3__ACCESS_KEY": s3.access_key,
        "S3__SECRET_KEY": s3.secret_key,
        "LOG__LEVEL": "warning",
    } | settings
    client = GrpcRemoteStorageManager()
    await client.configure({"endpoints": f"127.0.0.1:{number}"})
    service = Service(
        environment={f"AQUIFER_STORAGE_{name}": value for name, value in environment.items()},
        port=number,
        process=None,  # type: ignore[arg-type]
        client=client,
    )
    await service.start()
    try:
        yield service
    finally:
        await client.close()
        service.process.terminate()
        await service.process.wait()


def s3_client(s3: S3Endpoint, bucket: str) -> S3Client:
    """A client for checks beside the service."""
    return S3Client(
        S3Options(
            endpoint=s3.endpoint,
            bucket=bucket,
            access_key=s3.access_key,
            secret_key=s3.secret_key,
        )
    )


def content(client: S3Client) -> list[str]:
    """Keys and unfinished uploads of the bucket."""
    uploads = client._list_multipart_uploads(client.bucket, max_uploads=1000).uploads
    keys = [str(found.object_name) for found in client.list_objects(client.bucket, recursive=True)]
    return keys + [f"upload of {upload.object_name}" for upload in uploads]


SMALL_PARTS = {
    "COPYING__PART_SIZE_BYTES": str(5 * MIB),
    "COPYING__SINGLE_PUT_MAX_BYTES": "0",
    "COPYING__BUDGET_BYTES": str(20 * MIB),
}


@pytest.mark.parametrize("then", ["copy again", "delete"])
async def test_after_a_kill_in_the_middle_of_a_copy_it_can_be_repeated_or_deleted(
    s3_server: S3Endpoint, bucket: str, then: str
) -> None:
    """T16: kill -9 leaves nothing that a repeat or a deletion does not put right."""
    beside = s3_client(s3_server, bucket)
    log = builders.renumbered_log(24 * MIB, builders.record_batch(100, 16, 8_000), 100)
    segment = builders.segment(log)
    async with running(s3_server, bucket, **SMALL_PARTS) as service:

        class Killing(builders.BytesLogSource):
            async def chunks(self) -> AsyncIterator[bytes | memoryview]:
                sent = 0
                async for piece in super().chunks():
                    yield piece
                    sent += len(piece)
                    if sent > 12 * MIB and service.process.returncode is None:
                        await eventually(lambda: content(beside))
                        await service.kill()

        with pytest.raises(AquiferError):
            await copied(service.client, segment.with_data(log_segment=Killing(data=log)))
        assert content(beside) == [f"upload of {name}" for name in _log_keys(segment)]
        await service.start()
        if then == "copy again":
            metadata = await copied(service.client, segment)
            assert await joined(service.client.fetch_log_segment(metadata, 0)) == log
            steps = [step async for step in service.client.verify_segment(metadata)]
            assert not any(step.findings for step in steps)
        await service.client.delete_log_segment_data(segment.metadata)
        assert content(beside) == []


def _log_keys(segment: builders.BuiltSegment) -> list[str]:
    metadata = segment.metadata
    tip = metadata.topic_id_partition
    start = f"{metadata.start_offset:020d}"
    return [f"{tip.topic}-{tip.topic_id}/{tip.partition}/{start}-{metadata.segment_id.id}.log"]


class PeakMemory:
    """Watches the memory of a process; a context manager."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = Event()
        self._thread = Thread(target=self._watch)
        self.first_bytes = self.peak_bytes = self._process.memory_info().rss

    @property
    def growth_bytes(self) -> int:
        """By how much it grew."""
        return self.peak_bytes - self.first_bytes

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.slow
async def test_memory_is_bounded_whatever_the_size_of_a_segment(
    s3_server: S3Endpoint, bucket: str
) -> None:
    """T45, T50: a segment of 256 MiB is copied and read within budgets of 32 MiB each."""
    settings = {
        "COPYING__PART_SIZE_BYTES": str(8 * MIB),
        "COPYING__SINGLE_PUT_MAX_BYTES": str(8 * MIB),
        "COPYING__BUDGET_BYTES": str(32 * MIB),
        "READING__CHUNK_CACHE_BYTES": str(32 * MIB),
    }
    log = builders.renumbered_log(256 * MIB, builders.record_batch(0, 64, 8_000))
    segment = builders.segment(log, start_offset=0)
    async with running(s3_server, bucket, **settings) as service:
        await copied(service.client, builders.segment())
        with PeakMemory(service.process.pid) as copying:
            metadata = await copied(service.client, segment)
        with PeakMemory(service.process.pid) as reading:
            size = 0
            async for piece in service.client.fetch_log_segment(metadata, 0):
                size += len(piece)
        assert size == len(log)
        # Beyond the budgets: messages on their way, and what the allocator keeps.
        assert copying.growth_bytes < 128 * MIB
        assert reading.growth_bytes < 64 * MIB
        await service.client.delete_log_segment_data(metadata)


async def test_a_damaged_object_is_data_loss_and_never_served(
    s3_server: S3Endpoint, bucket: str
) -> None:
    beside = s3_client(s3_server, bucket)
    segment = builders.segment(size_bytes=100_000)
    async with running(s3_server, bucket) as service:
        metadata = await copied(service.client, segment)
        (key,) = _log_keys(segment)
        data = bytearray(segment.log)
        data[50_000] ^= 1
        beside.put(key, bytes(data))
        with pytest.raises(CorruptSegmentError) as raised:
            await joined(service.client.fetch_log_segment(metadata, 0))
        assert raised.value.metadata["segmentId"] == str(metadata.segment_id.id)
        assert raised.value.metadata["chunk"] == "0"
        with pytest.raises(CorruptSegmentError):
            await joined(service.client.fetch_records(metadata, metadata.end_offset, 1))
        findings = [
            found
            async for step in service.client.verify_segment(metadata)
            for found in step.findings
        ]
        assert [(found.part, found.chunk) for found in findings] == [("log", 0)]
        beside.put(key, segment.log)
        assert await joined(service.client.fetch_log_segment(metadata, 0)) == segment.log


async def test_requests_to_the_store_are_spans_of_the_rpc_that_needs_them(
    s3_server: S3Endpoint, bucket: str, otlp_collector: OtlpCollector
) -> None:
    async with running(
        s3_server,
        bucket,
        TELEMETRY__OTLP_ENDPOINT=otlp_collector.endpoint,
        TELEMETRY__METRICS_INTERVAL_S="0.5",
    ) as service:
        metadata = await copied(service.client, builders.segment())
        await joined(service.client.fetch_log_segment(metadata, 0))
        await otlp_collector.wait_for_spans(
            lambda spans: [span for span in spans if span.name.endswith("/FetchLogSegment")]
        )

        def children_of(method: str) -> list[str]:
            return [
                child.span.name
                for tree in otlp_collector.trees()
                for node in tree.walk()
                if node.span.name.endswith(f"/{method}") and node.span.kind == "SERVER"
                for child in node.children
            ]

        await eventually(lambda: "s3.get_object" in children_of("FetchLogSegment"))
        assert children_of("CopyLogSegmentData") == [
            "s3.put_object",
            "s3.put_object",
            "s3.head_object",
        ]
        names = {"aquifer.object_store.requests", "aquifer.object_store.bytes"}
        await eventually(lambda: names <= {point.name for point in otlp_collector.points})


def entries(folder: Path) -> int:
    """Chunks on disk."""
    return len(list(folder.glob("cache/chunks/??/*")))


async def test_workers_share_the_port_and_the_disk_cache(
    s3_server: S3Endpoint, bucket: str, tmp_path: Path
) -> None:
    segment = builders.segment(size_bytes=3 * MIB)
    folder = str(tmp_path / "cache")
    async with running(s3_server, bucket, WORKERS="2", DISK_CACHE__FOLDER=folder) as service:
        metadata = await copied(service.client, segment)
        workers = psutil.Process(service.process.pid).children()
        assert len(workers) == 2
        assert await joined(service.client.fetch_log_segment(metadata, 0)) == segment.log
        await eventually(lambda: entries(tmp_path) == 1)
        await service.client.delete_log_segment_data(metadata)
        assert entries(tmp_path) == 0
    assert not any(worker.is_running() for worker in workers)
