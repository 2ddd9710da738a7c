"""`aquifer-standalone demo`: a real data set out to the store and back, with figures."""

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from aquifer_standalone.demo.dataset import Line, load_lines, repeated, timestamp_ms
from aquifer_standalone.demo.tiers import TierWatch, tiers_table
from aquifer_standalone.demo.trace_view import cold_fetch_trace, trace_tree
from aquifer_standalone.demo.traffic import Outcome, consume, produce
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
_DEADLINE_S: Final = 180.0
_CLIENT_S: Final = 30.0

_MIN_WIDTH: Final = 120

console = Console()
if not console.is_terminal:
    console = Console(width=_MIN_WIDTH)


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
                async with TierWatch.open(suite, TOPIC, PARTITIONS) as tiers:
                    return await _story(suite, tiers, collector, lines, megabytes * 1024 * 1024)


async def _story(
    suite: Stack, tiers: TierWatch, collector: TraceCollector, lines: list[Line], min_bytes: int
) -> int:
    base_ms = time.time_ns() // 1_000_000
    await asyncio.to_thread(_create_topic, suite.bootstrap)
    produced = await _produce(suite, lines, base_ms, min_bytes)
    await _show_copying(tiers, produced)
    console.print(
        tiers_table("All rolled segments are remote, and still local", await tiers.read())
    )
    await asyncio.to_thread(_set_topic_config, suite.bootstrap, _LOCAL_RETENTION)
    await _show_local_retention(tiers)
    after = await tiers.read()
    console.print(tiers_table(f"After {_short_config(_LOCAL_RETENTION)}", after))
    cold_start = {state.partition: state.local_log_start_offset for state in after}
    consumed = await _consume(suite, produced, cold_start)
    same = _compare(produced, consumed)
    _say_where_bytes_came_from(consumed)
    found = await asyncio.to_thread(_lookup, suite.bootstrap, base_ms, cold_start)
    console.print(trace_tree(await cold_fetch_trace(collector)))
    ok = same and found
    console.rule("[bold green]everything came back as it was" if ok else "[bold red]FAILED")
    return 0 if ok else 1


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config=_TOPIC_CONFIG)
    for future in admin.create_topics([topic], request_timeout=_CLIENT_S).values():
        future.result(_CLIENT_S)
    console.print(
        f"topic [bold]{TOPIC}[/]: {PARTITIONS} partitions, {_short_config(_TOPIC_CONFIG)}"
    )


def _set_topic_config(bootstrap: str, config: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_CLIENT_S)


def _short_config(config: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items())


async def _produce(suite: Stack, lines: list[Line], base_ms: int, min_bytes: int) -> Outcome:
    with _bar() as bar:
        task = bar.add_task("produce (librdkafka, idempotent)", total=min_bytes)
        outcome = await asyncio.to_thread(
            produce,
            suite.bootstrap,
            TOPIC,
            repeated(lines, min_bytes),
            partitions=PARTITIONS,
            base_ms=base_ms,
            progress=lambda moved: bar.update(task, completed=moved, total=max(moved, min_bytes)),
        )
    console.print(_figures("produced", outcome))
    return outcome


async def _consume(suite: Stack, produced: Outcome, cold_below: dict[int, int]) -> Outcome:
    with _bar() as bar:
        task = bar.add_task("consume from offset 0 (consumer group)", total=produced.size_bytes)
        until = {number: digest.records for number, digest in produced.digests.items()}
        outcome = await asyncio.to_thread(
            consume,
            suite.bootstrap,
            TOPIC,
            f"demo-{os.getpid()}",
            until,
            cold_below=cold_below,
            progress=lambda moved: bar.update(task, completed=moved),
        )
    console.print(_figures("consumed", outcome))
    return outcome


def _figures(verb: str, outcome: Outcome) -> str:
    return (
        f"{verb} {outcome.records:,} records, {outcome.size_bytes / 1e6:,.0f} MB of keys and values"
        f" in {outcome.seconds:.1f} s: [bold]{outcome.mb_per_s:,.0f} MB/s[/],"
        f" {outcome.records / outcome.seconds:,.0f} records/s through Python"
    )


async def _show_copying(tiers: TierWatch, produced: Outcome) -> None:
    ends = {number: digest.records for number, digest in produced.digests.items()}
    with _bar() as bar:
        task = bar.add_task("copy to the object store")
        async for states in tiers.until(
            lambda states: all(
                s.log_end_offset == ends[s.partition] and not s.copy_lag_bytes for s in states
            ),
            timeout_s=_DEADLINE_S,
        ):
            remote = sum(s.remote_bytes for s in states)
            lag = sum(s.copy_lag_bytes for s in states)
            bar.update(task, completed=remote, total=remote + lag)


async def _show_local_retention(tiers: TierWatch) -> None:
    limit = 2 * SEGMENT_BYTES
    with console.status("local retention drops what is remote"):
        async for _ in tiers.until(
            lambda states: all(s.local_bytes <= limit for s in states), timeout_s=_DEADLINE_S
        ):
            pass


def _compare(produced: Outcome, consumed: Outcome) -> bool:
    same = True
    for number, digest in produced.digests.items():
        other = consumed.digests[number]
        equal = digest.hexdigest() == other.hexdigest()
        same &= equal
        verdict = "[green]equal" if equal else f"[red]DIFFERENT: {other.hexdigest()[:16]}"
        console.print(
            f"  partition {number}: {digest.records:,} records, offset, timestamp, key and value"
            f" digest {digest.hexdigest()[:16]} {verdict}"
        )
    return same


def _say_where_bytes_came_from(consumed: Outcome) -> None:
    cold, total = consumed.cold_bytes, consumed.size_bytes
    console.print(
        f"read from the object store: {cold / 1e6:,.0f} MB ({cold / total:.0%}),"
        f" from broker disks: {(total - cold) / 1e6:,.0f} MB"
    )


def _lookup(bootstrap: str, base_ms: int, cold_start: dict[int, int]) -> bool:
    number, start = max(cold_start.items(), key=lambda item: item[1])
    middle = start // 2
    at_ms = timestamp_ms(base_ms, middle)
    expected = next(n for n in range(middle + 1) if timestamp_ms(base_ms, n) == at_ms)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-lookup"})
    try:
        asked = [TopicPartition(TOPIC, number, at_ms)]
        answer = consumer.offsets_for_times(asked, timeout=_CLIENT_S)[0]
    finally:
        consumer.close()
    right = answer.offset == expected
    console.print(
        f"offset of timestamp {at_ms} in the cold part of partition {number}: {answer.offset:,}"
        + (" [green]right" if right else f" [red]WRONG, expected {expected:,}")
    )
    return right


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
