"""How fast a manager gets through a backlog of rolled segments, over uploading the same files one after the other."""

import asyncio
import time
from collections.abc import Mapping

from aquifer_standalone.stack import Stack
from bench import load, raw_store
from bench.tiered_topics import copy_all, rolled_files

_TOPIC = "backlog"
_PARTITIONS = 8


async def measure_backlog(
    suite: Stack, *, segments: int, segment_bytes: int
) -> Mapping[str, float]:
    """Rolls so many segments, uploads them with the store's client alone, then enables tiering."""
    config = {"segment.bytes": str(segment_bytes)}
    await asyncio.to_thread(load.create_topic, suite.bootstrap, _TOPIC, _PARTITIONS, config)
    total_bytes = (segments + _PARTITIONS) * segment_bytes
    await asyncio.to_thread(load.produce, suite.bootstrap, _TOPIC, _PARTITIONS, total_bytes)
    files = rolled_files(suite, _TOPIC)
    size_bytes = sum(file.stat().st_size for file in files)
    raw_mb_s = await asyncio.to_thread(raw_store.put_mb_s, suite.s3.target, files)
    started = time.perf_counter()
    await copy_all(suite, _TOPIC, _PARTITIONS)
    drained_mb_s = size_bytes / 1e6 / (time.perf_counter() - started)
    return {
        "backlog_segments": len(files),
        "backlog_mb_s": drained_mb_s,
        "backlog_over_raw_put": drained_mb_s / raw_mb_s,
    }
