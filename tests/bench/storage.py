"""The storage service alone, through gRPC: copies and cold, cached and parallel reads over what the store does by itself."""

import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import builders
import psutil
from aquifer_client import GrpcRemoteStorageManager
from aquifer_core.formats.record_batch import iter_batches, patch_header
from aquifer_core.formats.records import Record, encode_batch
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_rpc.allocator import keep_freed_memory
from aquifer_standalone.ports import LOOPBACK, hold_ports
from aquifer_standalone.readiness import S3Target, grpc_serving
from aquifer_standalone.s3 import EmbeddedS3
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.supervisor import Supervisor
from aquifer_standalone.trace_collector import TraceCollector
from bench import raw_store
from bench.bare_stream import BareStream, bare_stream
from fixtures.key_rings import new_key_ring

GIB = 1024**3
SEGMENT_BYTES = 256 * 1024 * 1024
PARALLEL_SEGMENT_BYTES = 128 * 1024 * 1024
PARALLEL = 32
FETCH_BYTES = raw_store.RANGE_BYTES
"""Of one FetchRecords call, as of one raw ranged GET."""
ROUNDS = 5
_METRICS_S = 0.5
_REQUESTS = "aquifer.object_store.requests"
_BUCKET = "aquifer"
_PUTS = frozenset({"put_object", "create_upload", "upload_part", "complete_upload"})
_GETS = frozenset({"get_object"})
# Batches of the producer's default size (batch.size of the Java client), records of 1 KB that do not compress.
_BATCH_RECORDS = 16
_RECORD_BYTES = 1000
# One segment must fit, or a second reading would find nothing of it.
_ENVIRONMENT = {"AQUIFER_STORAGE_READING__CHUNK_CACHE_BYTES": str(2 * SEGMENT_BYTES)}


@dataclass(slots=True)
class _Service:
    """A storage service that is measured: its client, its process, and what it asked of the store."""

    client: GrpcRemoteStorageManager
    process: psutil.Process
    collector: TraceCollector

    @property
    def cpu_s(self) -> float:
        """Processor time so far, of worker processes too."""
        return sum(_cpu_s(each) for each in (self.process, *self.process.children(recursive=True)))

    async def requests(self, operations: frozenset[str]) -> float:
        """Requests to the store so far, once the counters have been sent."""
        await asyncio.sleep(3 * _METRICS_S)
        return sum(
            value
            for attributes, value in self.collector.counters(_REQUESTS).items()
            if dict(attributes).get("aquifer.operation") in operations
        )


@dataclass(slots=True)
class _Rounds:
    """Seconds and processor seconds of every round, by what was done."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str, service: _Service) -> Iterator[None]:
        """Times the block."""
        cpu_s, started = service.cpu_s, time.perf_counter()
        yield
        self.seconds.setdefault(what, []).append(time.perf_counter() - started)
        self.cpu_s.setdefault(what, []).append(service.cpu_s - cpu_s)

    def speed_over(self, what: str, other: str) -> float:
        """Median over the rounds of how many times as fast one thing was as another in the same round."""
        pairs = zip(self.seconds[other], self.seconds[what], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    def mb_s(self, what: str) -> float:
        """Median speed."""
        return SEGMENT_BYTES / 1e6 / statistics.median(self.seconds[what])

    def cpu_s_per_gib(self, what: str) -> float:
        """Median processor time of the service."""
        return statistics.median(self.cpu_s[what]) * GIB / SEGMENT_BYTES


async def measure() -> Mapping[str, float]:
    """Copies and reads 256 MiB segments in interleaved rounds, then 32 segments at once."""
    keep_freed_memory()  # as every process of ours does that receives records
    folder = Path(tempfile.mkdtemp(prefix="aquifer-bench-"))
    try:
        log = _log(SEGMENT_BYTES)
        file = folder / "raw.log"
        file.write_bytes(log)
        async with bare_stream() as bare, _running(folder) as (service, target):
            figures = await _rounds(service, target, bare, log, file)
        async with _running(folder, AQUIFER_STORAGE_S3__SIGN_PAYLOADS="false") as (service, target):
            figures |= await _unsigned_rounds(service, target, log, file)
        file.write_bytes(text := _text_log(SEGMENT_BYTES))
        ring = new_key_ring(folder)
        sealed = {
            "AQUIFER_STORAGE_COPYING__CODEC": "zstd",
            "AQUIFER_STORAGE_ENCRYPTION__KEY_RING_FILE": str(ring.path),
        }
        async with _running(folder, **sealed) as (service, target):
            figures |= await _sealed_rounds(service, target, text, file)
        async with _running(folder) as (service, _):
            figures["rss_32_copies_over_1"] = await _memory(service, _log(PARALLEL_SEGMENT_BYTES))
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _rounds(
    service: _Service, target: S3Target, bare: BareStream, log: bytes, file: Path
) -> dict[str, float]:
    rounds, offset_at = _Rounds(), _offsets(log)
    puts = gets = 0.0
    for _ in range(ROUNDS):
        with rounds.timed("raw_put", service):
            await asyncio.to_thread(raw_store.put_mb_s, target, [file])
        before = await service.requests(_PUTS)
        with rounds.timed("copy", service):
            metadata = await _copied(service, log)
        puts += await service.requests(_PUTS) - before
        with rounds.timed("raw_get", service):
            await asyncio.to_thread(raw_store.get_mb_s, target, [len(log)])
        before = await service.requests(_GETS)
        with rounds.timed("cold", service):
            await _read(service.client, metadata, offset_at)
        gets += await service.requests(_GETS) - before
        with rounds.timed("cached", service):
            await _read(service.client, metadata, offset_at)
        with rounds.timed("bare", service):
            await bare.read(SEGMENT_BYTES, FETCH_BYTES)
    moved_gib = ROUNDS * len(log) / GIB
    return {
        "raw_put_mb_s": rounds.mb_s("raw_put"),
        "copy_mb_s": rounds.mb_s("copy"),
        "copy_over_raw_put": rounds.speed_over("copy", "raw_put"),
        "copy_cpu_s_per_gib": rounds.cpu_s_per_gib("copy"),
        "put_requests_per_gib": puts / moved_gib,
        "raw_get_mb_s": rounds.mb_s("raw_get"),
        "read_cold_mb_s": rounds.mb_s("cold"),
        "read_cold_over_raw_get": rounds.speed_over("cold", "raw_get"),
        "read_cached_mb_s": rounds.mb_s("cached"),
        "read_cached_over_cold": rounds.speed_over("cached", "cold"),
        "bare_stream_mb_s": rounds.mb_s("bare"),
        "read_cached_over_bare_stream": rounds.speed_over("cached", "bare"),
        "bare_stream_over_raw_get": rounds.speed_over("bare", "raw_get"),
        "fetch_cpu_s_per_gib": rounds.cpu_s_per_gib("cold"),
        "fetch_cached_cpu_s_per_gib": rounds.cpu_s_per_gib("cached"),
        "get_requests_per_gib": gets / moved_gib,
    }


async def _unsigned_rounds(
    service: _Service, target: S3Target, log: bytes, file: Path
) -> dict[str, float]:
    """Copies whose signatures leave the payload to its checksum, as over TLS; the raw upload signs it."""
    rounds = _Rounds()
    for _ in range(ROUNDS):
        with rounds.timed("raw_put", service):
            await asyncio.to_thread(raw_store.put_mb_s, target, [file])
        with rounds.timed("copy", service):
            await _copied(service, log)
    return {
        "copy_unsigned_over_raw_put": rounds.speed_over("copy", "raw_put"),
        "copy_unsigned_cpu_s_per_gib": rounds.cpu_s_per_gib("copy"),
    }


async def _sealed_rounds(
    service: _Service, target: S3Target, log: bytes, file: Path
) -> dict[str, float]:
    """Text records, compressed with zstd and sealed with AES-GCM."""
    rounds, offset_at, stored_bytes = _Rounds(), _offsets(log), 0
    for _ in range(ROUNDS):
        with rounds.timed("raw_put", service):
            await asyncio.to_thread(raw_store.put_mb_s, target, [file])
        with rounds.timed("copy", service):
            metadata = await _copied(service, log)
        with rounds.timed("cold", service):
            await _read(service.client, metadata, offset_at)
        stored_bytes = (await service.client.describe_segment(metadata)).stored_bytes
    return {
        "copy_sealed_mb_s": rounds.mb_s("copy"),
        "copy_sealed_over_raw_put": rounds.speed_over("copy", "raw_put"),
        "copy_sealed_cpu_s_per_gib": rounds.cpu_s_per_gib("copy"),
        "read_sealed_cold_mb_s": rounds.mb_s("cold"),
        "stored_over_original": stored_bytes / len(log),
    }


async def _memory(service: _Service, log: bytes) -> float:
    """Peak memory of the service in 32 copies at once over that in one."""
    await _copied(service, log)
    one = _peak_bytes(service.process)
    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL):
            group.create_task(_copied(service, log))
    return _peak_bytes(service.process) / one


async def _copied(service: _Service, log: bytes) -> RemoteLogSegmentMetadata:
    segment = builders.segment(log, start_offset=0)
    result = await service.client.copy_log_segment_data(segment.metadata, segment.data)
    return replace(segment.metadata, custom_metadata=result.custom_metadata)


async def _read(
    client: GrpcRemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    offset_at: Mapping[int, int],
) -> None:
    """Reads a segment front to back: each call goes on where the one before ended, and whole batches must have come.

    Like the raw client, it does not look into what it gets.
    """
    offset = moved = 0
    while offset <= metadata.end_offset:
        pieces = client.fetch_records(metadata, offset, FETCH_BYTES, min_one_batch=True)
        moved += sum([len(piece) async for piece in pieces])
        offset = offset_at[moved]
    if moved != metadata.segment_size_bytes:
        raise RuntimeError(f"read {moved} bytes of {metadata.segment_size_bytes}")


def _offsets(log: bytes) -> Mapping[int, int]:
    """The offset behind each batch, by the batch's end."""
    return {batch.position + batch.size_bytes: batch.next_offset for batch in iter_batches(log)}


def _log(size_bytes: int) -> bytes:
    batch = builders.record_batch(0, _BATCH_RECORDS, _RECORD_BYTES)
    return builders.renumbered_log(size_bytes - len(batch), batch)


def _text_log(size_bytes: int) -> bytes:
    """Records as applications log them: JSON of about 300 bytes with a few random fields."""
    source = random.Random(1)
    # More different ones than a chunk has room for, or compression would find them again.
    size = 3 * _BATCH_RECORDS
    records = [
        Record(offset=number, timestamp_ms=builders.BASE_TIMESTAMP_MS + number, value=value)
        for number, value in enumerate(_text_records(source, 600 * size))
    ]
    batches = [encode_batch(records[at : at + size]) for at in range(0, len(records), size)]
    log, offset, taken = bytearray(), 0, 0
    while len(log) < size_bytes:
        batch = bytearray(batches[taken % len(batches)])
        if len(log) + len(batch) > size_bytes:
            break
        patch_header(batch, 0, offset, 0)
        log += batch
        offset, taken = offset + size, taken + 1
    return bytes(log)


def _text_records(source: random.Random, count: int) -> Iterator[bytes]:
    for number in range(count):
        record = {
            "time": f"2027-03-01T{number % 24:02}:{source.randrange(60):02}:{source.random() * 60:09.6f}Z",
            "level": source.choice(["INFO", "INFO", "INFO", "WARN", "ERROR"]),
            "logger": f"com.example.orders.{source.choice(['Checkout', 'Payment', 'Stock'])}Service",
            "message": f"order {source.randrange(10**9)} of customer {source.randrange(10**7)} processed",
            "trace_id": f"{source.getrandbits(128):032x}",
            "duration_ms": round(source.random() * 900, 3),
            "host": f"orders-{source.randrange(20)}.eu-west.example.com",
        }
        yield json.dumps(record).encode()


@asynccontextmanager
async def _running(folder: Path, **further: str) -> AsyncIterator[tuple[_Service, S3Target]]:
    """An S3 server and the service as processes of their own."""
    data_dir = Path(tempfile.mkdtemp(dir=folder))
    s3 = EmbeddedS3(data_dir, access_key="aquifer", secret_key="aquifer-bench", bucket=_BUCKET)
    (port,) = hold_ports(1)
    address = f"{LOOPBACK}:{port.number}"
    async with TraceCollector() as collector:
        environment = {
            "GRPC__LISTEN": address,
            "S3__ENDPOINT": s3.target.endpoint,
            "S3__ACCESS_KEY": s3.target.access_key,
            "S3__SECRET_KEY": s3.target.secret_key,
            "S3__BUCKET": _BUCKET,
            "TELEMETRY__OTLP_ENDPOINT": collector.endpoint,
            "TELEMETRY__SAMPLE_RATIO": "0",
            "TELEMETRY__METRICS_INTERVAL_S": str(_METRICS_S),
        }
        spec = ProcessSpec(
            name="storage",
            argv=(sys.executable, "-m", "aquifer_storage"),
            env={f"AQUIFER_STORAGE_{key}": value for key, value in environment.items()}
            | _ENVIRONMENT
            | further,
            cwd=data_dir,
            readiness=lambda: grpc_serving(address),
            depends_on=(s3.spec().name,),
            ports=(port,),
        )
        async with Supervisor([s3.spec(), spec], data_dir=data_dir) as supervisor:
            client = GrpcRemoteStorageManager()
            await client.configure({"endpoints": address})
            try:
                pid = supervisor.child("storage").pid
                yield _Service(client, psutil.Process(pid), collector), s3.target
            finally:
                await client.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _peak_bytes(process: psutil.Process) -> int:
    """Largest resident memory so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
