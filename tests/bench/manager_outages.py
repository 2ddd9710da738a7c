"""What clients notice while something below the brokers does not answer, over what they notice without, taking turns."""

import asyncio
import statistics
from collections.abc import Mapping

from aquifer_standalone.stack import Stack
from bench import load
from bench.manager_cold import tier_topic
from bench.manager_latency import percentile, produce_latencies
from bench.tiered_topics import drop_local, restart, until_indexed

_TOPIC = "hot-in-outages"
_OUTAGES = ("s3", "storage", "manager", "metadata", "postgres")


async def measure_outages(suite: Stack, *, seconds: float, rounds: int) -> Mapping[str, float]:
    """Of a topic that is tiered and rolls all the time; each outage begins before and ends after its measurement."""
    config = {"remote.storage.enable": "true", "segment.bytes": str(1024 * 1024)}
    await asyncio.to_thread(load.create_topic, suite.bootstrap, _TOPIC, 1, config)
    await asyncio.to_thread(produce_latencies, suite.bootstrap, _TOPIC, min(seconds, 2.0))
    ratios: dict[str, list[float]] = {name: [] for name in _OUTAGES}
    for _ in range(rounds):
        for name in _OUTAGES:
            alone = await asyncio.to_thread(produce_latencies, suite.bootstrap, _TOPIC, seconds)
            child = suite.supervisor.child(name)
            await child.stop()
            try:
                during = await asyncio.to_thread(
                    produce_latencies, suite.bootstrap, _TOPIC, seconds
                )
            finally:
                await child.start()
            ratios[name].append(percentile(during, 99) / percentile(alone, 99))
    return {
        f"hot_p99_{name}_down_over_up": statistics.median(found) for name, found in ratios.items()
    }


async def measure_cold_without_metadata(
    suite: Stack, *, total_bytes: int, rounds: int
) -> Mapping[str, float]:
    """Cold consumes with empty caches, planned by the manager's local remote index alone, over such that metadata plans."""
    partitions = 8
    topic = await tier_topic(suite, partitions, total_bytes=total_bytes)
    starts = await drop_local(suite, topic, partitions)
    await until_indexed(suite, topic, starts)
    up, down = [], []
    metadata = suite.supervisor.child("metadata")
    for _ in range(rounds):
        await restart(suite, "storage")
        up.append(await asyncio.to_thread(load.consume, suite.bootstrap, topic, starts))
        await restart(suite, "storage")
        await metadata.stop()
        try:
            down.append(await asyncio.to_thread(load.consume, suite.bootstrap, topic, starts))
        finally:
            await metadata.start()
    return {
        "cold_mb_s_metadata_down": statistics.median(down),
        "cold_metadata_down_over_up": statistics.median(down) / statistics.median(up),
    }
