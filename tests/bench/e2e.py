"""The whole suite with librdkafka: hot and cold, over what the store alone does, in one run."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aquifer_standalone.demo.tiers import ManagerTierWatch, PartitionTiers, TierWatch
from aquifer_standalone.stack import Stack, StackSettings
from aquifer_standalone.trace_collector import TraceCollector
from bench import load, raw_store

GIB = 1024**3
TOTAL_BYTES = 512 * 1024 * 1024
SEGMENT_BYTES = 64 * 1024 * 1024
PARTITIONS = 4
REPEATS = 3
_DEADLINE_S = 180.0
_METRICS_S = 0.5
_REQUESTS = "aquifer.object_store.requests"
_PUTS = frozenset({"put_object", "create_upload", "upload_part", "complete_upload"})
_GETS = frozenset({"get_object"})


async def measure() -> Mapping[str, float]:
    figures: dict[str, float] = {}
    async with _suite() as (suite, collector):
        figures |= await asyncio.to_thread(_hot, suite)
        await _tiered(suite, collector, figures)
    return figures


@asynccontextmanager
async def _suite() -> AsyncIterator[tuple[Stack, TraceCollector]]:
    folder = Path(tempfile.mkdtemp(prefix="aquifer-bench-"))
    try:
        async with TraceCollector() as collector:
            settings = StackSettings(
                data_dir=folder,
                brokers=1,
                storage={
                    "AQUIFER_STORAGE_TELEMETRY__OTLP_ENDPOINT": collector.endpoint,
                    "AQUIFER_STORAGE_TELEMETRY__SAMPLE_RATIO": "0",
                    "AQUIFER_STORAGE_TELEMETRY__METRICS_INTERVAL_S": str(_METRICS_S),
                },
                manager={"AQUIFER_MANAGER_TASK_INTERVAL_MS": "500"},
            )
            async with Stack(settings) as suite:
                yield suite, collector
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hot(suite: Stack) -> dict[str, float]:
    load.create_topic(suite.bootstrap, "hot", PARTITIONS, {})
    produced = load.produce(suite.bootstrap, "hot", PARTITIONS, TOTAL_BYTES)
    until = _even_ends(TOTAL_BYTES)
    rates = [load.consume(suite.bootstrap, "hot", until) for _ in range(REPEATS)]
    return {"hot_produce_mb_s": produced, "hot_consume_mb_s": statistics.median(rates)}


def _even_ends(total_bytes: int) -> dict[int, int]:
    count = total_bytes // load.RECORD_BYTES
    return {number: (count - number - 1) // PARTITIONS + 1 for number in range(PARTITIONS)}


async def _tiered(suite: Stack, collector: TraceCollector, figures: dict[str, float]) -> None:
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    await asyncio.to_thread(load.create_topic, suite.bootstrap, "cold", PARTITIONS, config)
    await asyncio.to_thread(load.produce, suite.bootstrap, "cold", PARTITIONS, TOTAL_BYTES)
    files = _rolled_files(suite, "cold")
    raw_put = statistics.median(
        [
            await asyncio.to_thread(raw_store.put_mb_s, suite.s3.target, files)
            for _ in range(REPEATS)
        ]
    )
    sizes = [file.stat().st_size for file in files]
    raw_get = statistics.median(
        [
            await asyncio.to_thread(raw_store.get_mb_s, suite.s3.target, sizes)
            for _ in range(REPEATS)
        ]
    )
    async with ManagerTierWatch.open(suite, "cold", PARTITIONS) as tiers:
        copied, puts = await _copy(suite, collector, tiers, sum(sizes))
        starts = await _drop_local(suite, tiers)
        cold, gets, cold_bytes = await _cold(suite, collector, starts)
    hot = figures["hot_consume_mb_s"]
    figures |= {
        "raw_put_mb_s": raw_put,
        "raw_get_mb_s": raw_get,
        "copy_mb_s": copied,
        "copy_over_raw_put": copied / raw_put,
        "cold_consume_mb_s": cold,
        "cold_over_hot_consume": cold / hot,
        "cold_over_raw_get": cold / raw_get,
        "put_requests_per_gib": puts * GIB / sum(sizes),
        "get_requests_per_gib": gets * GIB / cold_bytes,
    }


def _rolled_files(suite: Stack, topic: str) -> list[Path]:
    """Every `.log` file but the last of each partition."""
    folders = sorted(suite.log_dir(1).glob(f"{topic}-*"))
    return [file for folder in folders for file in sorted(folder.glob("*.log"))[:-1]]


async def _copy(
    suite: Stack, collector: TraceCollector, tiers: TierWatch, rolled_bytes: int
) -> tuple[float, float]:
    """Enables tiering and waits until all rolled segments are remote: (MB/s, PUT requests)."""
    before = await _requests(collector, _PUTS)
    started = time.perf_counter()
    await asyncio.to_thread(
        load.set_topic_config, suite.bootstrap, "cold", {"remote.storage.enable": "true"}
    )

    def all_remote(states: list[PartitionTiers]) -> bool:
        return sum(state.remote_bytes for state in states) >= rolled_bytes and all(
            state.highest_remote_offset > 0 and not state.copy_lag_bytes for state in states
        )

    async for _ in tiers.until(all_remote, timeout_s=_DEADLINE_S):
        pass
    seconds = time.perf_counter() - started
    return rolled_bytes / 1e6 / seconds, await _requests(collector, _PUTS) - before


async def _drop_local(suite: Stack, tiers: TierWatch) -> dict[int, int]:
    """Lets local retention drop what is remote: partition -> first local offset."""
    config = {"local.retention.bytes": "1"}
    await asyncio.to_thread(load.set_topic_config, suite.bootstrap, "cold", config)
    async for _ in tiers.until(
        lambda states: all(
            state.local_log_start_offset == state.highest_remote_offset + 1
            and state.local_bytes <= SEGMENT_BYTES
            for state in states
        ),
        timeout_s=_DEADLINE_S,
    ):
        pass
    return {state.partition: state.local_log_start_offset for state in await tiers.read()}


async def _cold(
    suite: Stack, collector: TraceCollector, starts: Mapping[int, int]
) -> tuple[float, float, int]:
    """Consumes the remote part once with empty caches: (MB/s, GET requests, bytes)."""
    before = await _requests(collector, _GETS)
    rate = await asyncio.to_thread(load.consume, suite.bootstrap, "cold", starts)
    gets = await _requests(collector, _GETS) - before
    return rate, gets, sum(starts.values()) * load.RECORD_BYTES


async def _requests(collector: TraceCollector, operations: frozenset[str]) -> float:
    """Requests to the store so far, once its counters have been sent."""
    await asyncio.sleep(3 * _METRICS_S)
    return sum(
        value
        for attributes, value in collector.counters(_REQUESTS).items()
        if dict(attributes).get("aquifer.operation") in operations
    )
