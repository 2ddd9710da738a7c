"""One consumer of 1, 8 and 64 partitions: what is remote over the same records while they are local."""

import asyncio
import statistics
from collections.abc import Mapping

from aquifer_standalone.stack import Stack
from bench import load
from bench.tiered_topics import copy_all, drop_local, restart

_SEGMENTS_PER_PARTITION = 6
_LARGEST_SEGMENT = 16 * 1024 * 1024
_SMALLEST_SEGMENT = 2 * 1024 * 1024


async def measure_cold(
    suite: Stack, partitions: int, *, total_bytes: int, rounds: int
) -> Mapping[str, float]:
    """Consumes a topic hot, tiers it, and consumes the remote part cold, with empty caches each time."""
    topic = await _produced(suite, partitions, total_bytes)
    count = total_bytes // load.RECORD_BYTES
    ends = {number: (count - number - 1) // partitions + 1 for number in range(partitions)}
    hot = [
        await asyncio.to_thread(load.consume, suite.bootstrap, topic, ends) for _ in range(rounds)
    ]
    await copy_all(suite, topic, partitions)
    starts = await drop_local(suite, topic, partitions)
    cold = []
    for _ in range(rounds):
        await restart(suite, "storage", "manager")
        cold.append(await asyncio.to_thread(load.consume, suite.bootstrap, topic, starts))
    return {
        f"hot_mb_s_{partitions}p": statistics.median(hot),
        f"cold_mb_s_{partitions}p": statistics.median(cold),
        f"cold_over_hot_{partitions}p": statistics.median(cold) / statistics.median(hot),
    }


async def tier_topic(suite: Stack, partitions: int, *, total_bytes: int) -> str:
    """A topic whose rolled segments are only remote."""
    topic = await _produced(suite, partitions, total_bytes)
    await copy_all(suite, topic, partitions)
    await drop_local(suite, topic, partitions)
    return topic


async def _produced(suite: Stack, partitions: int, total_bytes: int) -> str:
    topic = f"cold-{partitions}"
    segment_bytes = total_bytes // partitions // _SEGMENTS_PER_PARTITION
    segment_bytes = min(max(segment_bytes, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
    config = {"segment.bytes": str(segment_bytes)}
    await asyncio.to_thread(load.create_topic, suite.bootstrap, topic, partitions, config)
    await asyncio.to_thread(load.produce, suite.bootstrap, topic, partitions, total_bytes)
    return topic
