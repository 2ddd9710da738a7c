"""The metadata service alone: look-ups, writes, readiness and retention over tables of up to ten million segments.

AQUIFER_BENCH_SEGMENTS takes the place of the ten million where time is short; they are loaded once and kept in build/bench-cache.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import builders
import grpc.aio
import psutil
import psycopg
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_client import GrpcRemoteLogMetadataManager
from aquifer_core.ids import TopicIdPartition
from aquifer_core.ports import RetentionPolicy
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_rpc.convert import tip_to_pb
from aquifer_standalone.ports import LOOPBACK, hold_port
from aquifer_standalone.postgres import EmbeddedPostgres
from aquifer_standalone.readiness import grpc_serving
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.supervisor import Supervisor
from bench.metadata_deletion import copied, lookups_beside_deletion
from bench.metadata_facts import (
    CACHE,
    OFFSETS_PER_SEGMENT,
    SEGMENT_BYTES,
    Facts,
    bytes_of_facts,
    empty_database,
    kept_facts,
)

if TYPE_CHECKING:
    from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
        RemoteLogMetadataServiceAsyncStub,
    )

SMALL = 10_000
LARGE = int(os.environ.get("AQUIFER_BENCH_SEGMENTS", "10000000"))
PER_PARTITION = 10_000
LONG_LOG = 100_000
ROUNDS = 5
ALONE = 400
"""Look-ups of a round that are made one after the other."""
TOGETHER = 4_000
"""Look-ups of a round that several callers make at once."""
CALLERS = 32
WRITERS = 16
PAIRS = 30
_DEADLINE_S = 60.0

# One row by one index, as the plainest program would ask for it: over one connection, one after the other.
_RAW = """SELECT * FROM remote_log_segment WHERE topic_id = %s AND partition = %s AND start_offset <= %s
ORDER BY start_offset DESC LIMIT 1"""


@dataclass(slots=True)
class _Service:
    """A service on a database: how to call it, and its process."""

    address: str
    ready_s: float
    process: psutil.Process

    @property
    def cpu_s(self) -> float:
        """Processor time so far."""
        times = self.process.cpu_times()
        return times.user + times.system


@dataclass(slots=True)
class _Seconds:
    """Durations of single look-ups, of groups of them, and of raw selects."""

    small: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)
    over_raw: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


async def measure() -> dict[str, float]:
    """Look-ups over both tables in interleaved rounds, then what needs a service of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    postgres = EmbeddedPostgres(CACHE, hold_port())
    async with Supervisor([postgres.spec()], data_dir=CACHE):
        dsn = postgres.dsn
        small = await kept_facts(dsn, SMALL, 1)
        large = await kept_facts(dsn, LARGE, max(1, LARGE // PER_PARTITION))
        long = await kept_facts(dsn, LONG_LOG, 1)
        figures = await _lookups(small, large)
        figures["retention_candidates_ms_1e5"] = await _retention(long)
        figures["add_finish_per_s"] = await _writes(await empty_database(dsn, "bench_writes"))
        figures["bytes_per_segment"] = bytes_of_facts(large) / large.segments
        figures["segments"] = large.segments
        both = await kept_facts(dsn, 2 * LONG_LOG, 2)
        figures |= await _deletion(copied(dsn, both))
        return figures


async def _lookups(small: Facts, large: Facts) -> dict[str, float]:
    seconds = _Seconds()
    async with (
        _running("small", small.dsn) as few,
        _running("large", large.dsn) as many,
        grpc.aio.insecure_channel(few.address) as to_few,
        grpc.aio.insecure_channel(many.address) as to_many,
    ):
        await _alone(to_few, small, 0)
        await _alone(to_many, large, 0)
        for seed in range(1, ROUNDS + 1):
            seconds.small += await _alone(to_few, small, seed)
            seconds.large += await _alone(to_many, large, seed)
            raw_per_s = _raw_selects_per_s(large, seed)
            cpu_s = many.cpu_s
            per_s = await _together_per_s(to_many, large, seed)
            seconds.cpu_s += many.cpu_s - cpu_s
            seconds.per_s.append(per_s)
            seconds.over_raw.append(per_s / raw_per_s)
        return {
            "lookup_p50_1e7_over_1e4": _quantile(seconds.large, 50) / _quantile(seconds.small, 50),
            "lookup_p50_ms_1e7": _quantile(seconds.large, 50) * 1000,
            "lookup_p99_ms_1e7": _quantile(seconds.large, 99) * 1000,
            "lookups_over_raw_select": statistics.median(seconds.over_raw),
            "lookups_per_s": statistics.median(seconds.per_s),
            "lookup_cpu_us": seconds.cpu_s / (ROUNDS * TOGETHER) * 1e6,
            "ready_s_1e7": many.ready_s,
        }


async def _alone(channel: grpc.aio.Channel, facts: Facts, seed: int) -> list[float]:
    """Seconds of each of many look-ups made one after the other."""
    stub: RemoteLogMetadataServiceAsyncStub = RemoteLogMetadataServiceStub(channel)
    seconds = []
    for request in _requests(facts, ALONE, seed):
        started = time.perf_counter()
        await _found(stub, request)
        seconds.append(time.perf_counter() - started)
    return seconds


async def _together_per_s(channel: grpc.aio.Channel, facts: Facts, seed: int) -> float:
    """Look-ups per second of several callers at once."""
    stub: RemoteLogMetadataServiceAsyncStub = RemoteLogMetadataServiceStub(channel)
    left = iter(list(_requests(facts, TOGETHER, seed)))

    async def caller() -> None:
        for request in left:
            await _found(stub, request)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as callers:
        for _ in range(CALLERS):
            callers.create_task(caller())
    return TOGETHER / (time.perf_counter() - started)


def _requests(
    facts: Facts, count: int, seed: int
) -> Iterator[pb.GetRemoteLogSegmentMetadataRequest]:
    for tip, offset in facts.questions(count, seed):
        yield pb.GetRemoteLogSegmentMetadataRequest(
            topic_id_partition=tip_to_pb(tip), leader_epoch=0, offset=offset
        )


async def _found(
    stub: RemoteLogMetadataServiceAsyncStub, request: pb.GetRemoteLogSegmentMetadataRequest
) -> None:
    answer = await stub.GetRemoteLogSegmentMetadata(request, timeout=_DEADLINE_S)
    if not answer.metadata.start_offset <= request.offset <= answer.metadata.end_offset:
        raise RuntimeError(f"{request} found {answer}")


def _raw_selects_per_s(facts: Facts, seed: int) -> float:
    questions = [
        (uuid.UUID(bytes=tip.topic_id.raw), tip.partition, offset)
        for tip, offset in facts.questions(TOGETHER, seed)
    ]
    with closing(psycopg.connect(facts.dsn, autocommit=True)) as connection:
        started = time.perf_counter()
        for question in questions:
            if connection.execute(_RAW, question).fetchone() is None:
                raise RuntimeError(f"nothing found for {question}")
        return TOGETHER / (time.perf_counter() - started)


async def _retention(facts: Facts) -> float:
    """Milliseconds of a decision over a log whose hundred oldest segments are too much."""
    policy = RetentionPolicy(
        retention_ms=-1,
        retention_bytes=(facts.segments - 100) * SEGMENT_BYTES,
        log_start_offset=0,
        log_end_offset=facts.segments * OFFSETS_PER_SEGMENT,
    )
    async with _running("retention", facts.dsn) as service, _client(service) as client:
        seconds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            plan = await client.list_retention_candidates(
                facts.partition(0), {0: 0}, policy, int(time.time() * 1000)
            )
            seconds.append(time.perf_counter() - started)
            if len(plan.candidates) != 100:
                raise RuntimeError(f"{len(plan.candidates)} candidates instead of 100")
        return statistics.median(seconds) * 1000


async def _deletion(facts: Facts) -> dict[str, float]:
    """What look-ups in one partition notice of the deletion of another with 10^5 segments."""
    async with _running("deletion", facts.dsn) as service, _client(service) as client:
        before, beside, took_s = await lookups_beside_deletion(client, facts)
    return {
        "forget_1e5_s": took_s,
        "lookup_p99_ms_beside_deletion": _quantile(beside, 99) * 1000,
        "lookup_p99_beside_deletion_over_before": _quantile(beside, 99) / _quantile(before, 99),
        "lookup_max_ms_beside_deletion": max(beside) * 1000,
    }


async def _writes(dsn: str) -> float:
    """Copies begun and finished per second, each writer in a partition of its own."""
    async with _running("writes", dsn) as service, _client(service) as client:
        await _add_and_finish(client, builders.topic_id_partition(), 5)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                tip = builders.topic_id_partition(partition=number)
                writers.create_task(_add_and_finish(client, tip, PAIRS))
        return WRITERS * PAIRS / (time.perf_counter() - started)


async def _add_and_finish(
    client: GrpcRemoteLogMetadataManager, tip: TopicIdPartition, count: int
) -> None:
    for number in range(count):
        start = number * OFFSETS_PER_SEGMENT
        segment = builders.remote_segment(tip, start, start + OFFSETS_PER_SEGMENT - 1)
        await client.add_remote_log_segment_metadata(segment, leader_epoch=0)
        finished = RemoteLogSegmentMetadataUpdate(
            segment_id=segment.segment_id,
            event_timestamp_ms=segment.event_timestamp_ms,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            broker_id=1,
        )
        await client.update_remote_log_segment_metadata(finished, leader_epoch=0)


@asynccontextmanager
async def _running(name: str, dsn: str) -> AsyncIterator[_Service]:
    """The service as a process of its own, logging as in production."""
    port = hold_port()
    address = f"{LOOPBACK}:{port.number}"
    data_dir = (CACHE / f"service-{name}").resolve()
    data_dir.mkdir(exist_ok=True)
    settings = {"GRPC__LISTEN": address, "DATABASE__DSN": dsn, "LOG__FORMAT": "json"}
    spec = ProcessSpec(
        name=name,
        argv=(sys.executable, "-m", "aquifer_metadata"),
        env={f"AQUIFER_METADATA_{key}": value for key, value in settings.items()},
        cwd=data_dir,
        readiness=lambda: grpc_serving(address),
        ports=(port,),
    )
    started = time.perf_counter()
    async with Supervisor([spec], data_dir=data_dir) as supervisor:
        ready_s = time.perf_counter() - started
        pid = supervisor.child(name).pid
        yield _Service(address, ready_s, psutil.Process(pid))


@asynccontextmanager
async def _client(service: _Service) -> AsyncIterator[GrpcRemoteLogMetadataManager]:
    client = GrpcRemoteLogMetadataManager()
    await client.configure({"endpoints": service.address})
    try:
        yield client
    finally:
        await client.close()


def _quantile(seconds: list[float], percent: int) -> float:
    return statistics.quantiles(seconds, n=100)[percent - 1]
