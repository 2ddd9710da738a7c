"""`aquifer-standalone demo`: a real data set out to the store and back, with figures."""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from aquifer_standalone.demo.dataset import Line, load_lines, timestamp_ms
from aquifer_standalone.demo.steps import (
    CLIENT_S,
    compare,
    console,
    consume_all,
    create_topic,
    produce_lines,
    say_where_bytes_came_from,
    set_topic_config,
    short_config,
    show_copying,
    show_local_retention,
)
from aquifer_standalone.demo.tiers import ManagerTierWatch, TierWatch, tiers_table
from aquifer_standalone.demo.trace_view import cold_fetch_trace, trace_tree
from aquifer_standalone.stack import Stack, StackSettings
from aquifer_standalone.trace_collector import TraceCollector

TOPIC: Final = "python-sources"
PARTITIONS: Final = 6
SEGMENT_BYTES: Final = 8 * 1024 * 1024
_BROKERS: Final = 3
_TOPIC_CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
}
_LOCAL_RETENTION: Final = {"local.retention.bytes": str(SEGMENT_BYTES)}


async def run_demo(source: Path | None, data_dir: Path | None, megabytes: int) -> int:
    """Runs the whole story on fresh servers.

    Args:
        source: lines to tier; None for the Python standard library's sources.
        data_dir: where to keep the data afterwards; None for a temporary folder.
        megabytes: least amount to tier, in MiB.

    Returns:
        0 when every record came back as it was produced, else 1.
    """
    lines = await asyncio.to_thread(load_lines, source)
    with contextlib.ExitStack() as stack:
        folder = data_dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="aquifer-"))
        )
        async with TraceCollector() as collector:
            started = time.monotonic()
            settings = StackSettings(
                data_dir=folder,
                brokers=_BROKERS,
                otlp_endpoint=collector.endpoint,
                manager={"AQUIFER_MANAGER_TASK_INTERVAL_MS": "1000"},
            )
            async with Stack(settings) as suite:
                count = len(suite.supervisor.status())
                console.rule("[bold]Aquifer: a Kafka log out to object storage and back")
                console.print(f"{count} processes ready in {time.monotonic() - started:.1f} s")
                async with ManagerTierWatch.open(suite, TOPIC, PARTITIONS) as tiers:
                    return await _story(suite, tiers, collector, lines, megabytes * 1024 * 1024)


async def _story(
    suite: Stack, tiers: TierWatch, collector: TraceCollector, lines: list[Line], min_bytes: int
) -> int:
    base_ms = time.time_ns() // 1_000_000
    await asyncio.to_thread(create_topic, suite.bootstrap, TOPIC, PARTITIONS, _TOPIC_CONFIG)
    produced = await produce_lines(
        suite.bootstrap,
        TOPIC,
        lines,
        partitions=PARTITIONS,
        base_ms=base_ms,
        min_bytes=min_bytes,
    )
    await show_copying(tiers, produced)
    console.print(
        tiers_table("All rolled segments are remote, and still local", await tiers.read())
    )
    await asyncio.to_thread(set_topic_config, suite.bootstrap, TOPIC, _LOCAL_RETENTION)
    await show_local_retention(tiers, 2 * SEGMENT_BYTES)
    after = await tiers.read()
    console.print(tiers_table(f"After {short_config(_LOCAL_RETENTION)}", after))
    cold_start = {state.partition: state.local_log_start_offset for state in after}
    consumed = await consume_all(suite.bootstrap, TOPIC, produced, cold_start)
    same = compare(produced, consumed)
    say_where_bytes_came_from(consumed)
    found = await asyncio.to_thread(_lookup, suite.bootstrap, base_ms, cold_start)
    console.print(trace_tree(await cold_fetch_trace(collector)))
    ok = same and found
    console.rule("[bold green]everything came back as it was" if ok else "[bold red]FAILED")
    return 0 if ok else 1


def _lookup(bootstrap: str, base_ms: int, cold_start: dict[int, int]) -> bool:
    number, start = max(cold_start.items(), key=lambda item: item[1])
    middle = start // 2
    at_ms = timestamp_ms(base_ms, middle)
    expected = next(n for n in range(middle + 1) if timestamp_ms(base_ms, n) == at_ms)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-lookup"})
    try:
        asked = [TopicPartition(TOPIC, number, at_ms)]
        answer = consumer.offsets_for_times(asked, timeout=CLIENT_S)[0]
    finally:
        consumer.close()
    right = answer.offset == expected
    console.print(
        f"offset of timestamp {at_ms} in the cold part of partition {number}: {answer.offset:,}"
        + (" [green]right" if right else f" [red]WRONG, expected {expected:,}")
    )
    return right
