"""What producers notice while something below the brokers does not answer: p99 of an outage over p99 without, taking turns."""

import asyncio
import statistics
from collections.abc import Mapping

from aquifer_standalone.stack import Stack
from bench import load
from bench.manager_latency import percentile, produce_latencies

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
