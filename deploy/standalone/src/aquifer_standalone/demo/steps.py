"""Steps that the stories of the demo share, each with what a person sees of it."""

import asyncio
import os
from typing import Final

from confluent_kafka.admin import (
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

from aquifer_standalone.demo.dataset import Line, repeated
from aquifer_standalone.demo.tiers import TierWatch
from aquifer_standalone.demo.traffic import Outcome, consume, produce

CLIENT_S: Final = 30.0
_ERRORS: Final = 3
"""Level of librdkafka's own log: what passes by itself is not shown."""
_DEADLINE_S: Final = 180.0
_MIN_WIDTH: Final = 120

console = Console()
if not console.is_terminal:
    console = Console(width=_MIN_WIDTH)


def create_topic(bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    """Creates a topic with one replica and says so."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": _ERRORS})
    new = NewTopic(topic, partitions, 1, config=config)
    for future in admin.create_topics([new], request_timeout=CLIENT_S).values():
        future.result(CLIENT_S)
    console.print(f"topic [bold]{topic}[/]: {partitions} partitions, {short_config(config)}")


def set_topic_config(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    """Sets configs of a topic."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": _ERRORS})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(CLIENT_S)


def short_config(config: dict[str, str]) -> str:
    """Configs in one line."""
    return " ".join(f"{key}={value}" for key, value in config.items())


async def produce_lines(
    bootstrap: str,
    topic: str,
    lines: list[Line],
    *,
    partitions: int,
    base_ms: int,
    min_bytes: int,
) -> Outcome:
    """Produces the lines again and again until there are so many bytes, and prints the rate."""
    with _bar() as bar:
        task = bar.add_task("produce (librdkafka, idempotent)", total=min_bytes)
        outcome = await asyncio.to_thread(
            produce,
            bootstrap,
            topic,
            repeated(lines, min_bytes),
            partitions=partitions,
            base_ms=base_ms,
            progress=lambda moved: bar.update(task, completed=moved, total=max(moved, min_bytes)),
        )
    console.print(figures("produced", outcome))
    return outcome


async def consume_all(
    bootstrap: str, topic: str, produced: Outcome, cold_below: dict[int, int]
) -> Outcome:
    """Consumes everything from offset 0 and prints the rate."""
    with _bar() as bar:
        task = bar.add_task("consume from offset 0 (consumer group)", total=produced.size_bytes)
        until = {number: digest.records for number, digest in produced.digests.items()}
        outcome = await asyncio.to_thread(
            consume,
            bootstrap,
            topic,
            f"demo-{os.getpid()}",
            until,
            cold_below=cold_below,
            progress=lambda moved: bar.update(task, completed=moved),
        )
    console.print(figures("consumed", outcome))
    return outcome


def figures(verb: str, outcome: Outcome, client: str = "Python") -> str:
    """Amount and rate in one line."""
    return (
        f"{verb} {outcome.records:,} records, {outcome.size_bytes / 1e6:,.0f} MB of keys and values"
        f" in {outcome.seconds:.1f} s: [bold]{outcome.mb_per_s:,.0f} MB/s[/],"
        f" {outcome.records / outcome.seconds:,.0f} records/s through {client}"
    )


async def show_copying(tiers: TierWatch, produced: Outcome) -> None:
    """Waits until every rolled segment is remote."""
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


async def show_local_retention(tiers: TierWatch, limit: int) -> None:
    """Waits until no partition has more than that on disk."""
    with console.status("local retention drops what is remote"):
        async for _ in tiers.until(
            lambda states: all(s.local_bytes <= limit for s in states), timeout_s=_DEADLINE_S
        ):
            pass


def compare(produced: Outcome, consumed: Outcome) -> bool:
    """Prints whether what came back is what was produced; True when all of it is."""
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


def say_where_bytes_came_from(consumed: Outcome) -> None:
    """Prints how much of it no disk had."""
    cold, total = consumed.cold_bytes, consumed.size_bytes
    console.print(
        f"read from the object store: {cold / 1e6:,.0f} MB ({cold / total:.0%}),"
        f" from broker disks: {(total - cold) / 1e6:,.0f} MB"
    )


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
