"""`aquifer-standalone demo-kafka`: a real Apache Kafka broker tiers a log out through the plugin and reads it back."""

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from aquifer_core.ids import KafkaUuid
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from aquifer_standalone.demo.dataset import Line, load_lines
from aquifer_standalone.demo.java_consumer import consume_with_java
from aquifer_standalone.demo.kafka_tiers import KafkaTierWatch
from aquifer_standalone.demo.steps import (
    CLIENT_S,
    compare,
    console,
    consume_all,
    create_topic,
    figures,
    produce_lines,
    say_where_bytes_came_from,
    set_topic_config,
    short_config,
    show_copying,
    show_local_retention,
)
from aquifer_standalone.demo.tiers import TierWatch, tiers_table
from aquifer_standalone.demo.trace_view import plugin_fetch_trace, trace_tree
from aquifer_standalone.demo.traffic import Outcome
from aquifer_standalone.kafka.cluster import KafkaCluster, KafkaSettings
from aquifer_standalone.kafka.installation import install
from aquifer_standalone.kafka.plugin import plugin_jar
from aquifer_standalone.kafka.tools import KafkaTools
from aquifer_standalone.programs import run_program
from aquifer_standalone.stack import Stack, StackSettings
from aquifer_standalone.trace_collector import TraceCollector

TOPIC: Final = "python-sources"
PARTITIONS: Final = 3
SEGMENT_BYTES: Final = 4 * 1024 * 1024
_TOPIC_CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
}
_LOCAL_RETENTION: Final = {"local.retention.bytes": str(SEGMENT_BYTES)}
_QUICK: Final = {
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
_COMMAND_S: Final = 60.0


async def run_kafka_demo(data_dir: Path | None, megabytes: int, version: str) -> int:
    """Runs the whole story on fresh servers.

    Args:
        data_dir: where to keep the data afterwards; None for a temporary folder.
        megabytes: least amount to tier, in MiB.
        version: release of Apache Kafka.

    Returns:
        0 when every record came back through both clients as it was produced, else 1.

    Raises:
        KafkaUnavailableError: there is no Java 17 or no Maven here.
    """
    with console.status(f"Apache Kafka {version} and the plugin, by Maven"):
        installation, plugin = await install(version), await plugin_jar()
    lines = await asyncio.to_thread(load_lines, None)
    with contextlib.ExitStack() as stack:
        folder = data_dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="aquifer-"))
        )
        async with TraceCollector() as collector:
            started = time.monotonic()
            settings = StackSettings(
                data_dir=folder,
                brokers=0,
                otlp_endpoint=collector.endpoint,
                kafka=KafkaSettings(installation=installation, plugin=plugin, properties=_QUICK),
            )
            async with Stack(settings) as suite:
                assert suite.kafka is not None
                count = len(suite.supervisor.status())
                console.rule(f"[bold]Apache Kafka {version} on Aquifer")
                console.print(f"{count} processes ready in {time.monotonic() - started:.1f} s")
                ok = await _story(suite, suite.kafka, lines, megabytes * 1024 * 1024)
                trace = await plugin_fetch_trace(collector)
                console.print(trace_tree(trace))
    console.rule("[bold green]everything came back as it was" if ok else "[bold red]FAILED")
    return 0 if ok else 1


async def _story(suite: Stack, cluster: KafkaCluster, lines: list[Line], min_bytes: int) -> bool:
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
    ends = {number: digest.records for number, digest in produced.digests.items()}
    topic_id = await asyncio.to_thread(_topic_id, suite.bootstrap)
    async with KafkaTierWatch.open(suite, TOPIC, topic_id, ends) as tiers:
        cold_start = await _tier_out(suite, tiers, produced)
    consumed = await consume_all(suite.bootstrap, TOPIC, produced, cold_start)
    same = compare(produced, consumed)
    say_where_bytes_came_from(consumed)
    same &= await _consume_with_java(suite, cluster, produced, ends)
    return same and await _show_segments(suite)


async def _tier_out(suite: Stack, tiers: TierWatch, produced: Outcome) -> dict[int, int]:
    """Shows how the log goes out; partition -> first offset left on disk."""
    await show_copying(tiers, produced)
    console.print(
        tiers_table("All rolled segments are remote, and still local", await tiers.read())
    )
    await asyncio.to_thread(set_topic_config, suite.bootstrap, TOPIC, _LOCAL_RETENTION)
    await show_local_retention(tiers, 2 * SEGMENT_BYTES)
    after = await tiers.read()
    console.print(tiers_table(f"After {short_config(_LOCAL_RETENTION)}", after))
    return {state.partition: state.local_log_start_offset for state in after}


async def _consume_with_java(
    suite: Stack, cluster: KafkaCluster, produced: Outcome, ends: dict[int, int]
) -> bool:
    tools = KafkaTools(cluster.settings.installation, suite.bootstrap)
    scratch = suite.settings.data_dir / "console-consumer.out"
    with console.status("consume from offset 0 (Java console consumer)"):
        consumed = await consume_with_java(tools, TOPIC, ends, scratch)
    scratch.unlink()
    console.print(figures("consumed", consumed, "Java"))
    return compare(produced, consumed)


async def _show_segments(suite: Stack) -> bool:
    """Lets the `aquifer` command list and verify what is remote."""
    where = ("--metadata", suite.address("metadata"), "--storage", suite.address("storage"))
    listed = await _aquifer("segments", "list", TOPIC, "--partition", "0", *where)
    verified = await _aquifer("segments", "verify", "--topic", TOPIC, *where, quiet=True)
    console.print(
        "every checksum of every segment: " + ("[green]right[/]" if verified else "[red]WRONG[/]")
    )
    return listed and verified


async def _aquifer(*arguments: str, quiet: bool = False) -> bool:
    if not quiet:
        console.print(f"[bold]$ aquifer {' '.join(arguments)}")
    ended = await run_program(
        (sys.executable, "-m", "aquifer_admin", *arguments), timeout_s=_COMMAND_S
    )
    if not quiet or ended.exit_code:
        console.out(ended.output.decode().rstrip())
    return ended.exit_code == 0


def _topic_id(bootstrap: str) -> KafkaUuid:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    [future] = admin.describe_topics(TopicCollection([TOPIC]), request_timeout=CLIENT_S).values()
    # The library's alphabet is not Kafka's.
    text = str(future.result(CLIENT_S).topic_id).translate(str.maketrans("+/", "-_"))
    return KafkaUuid.parse(text)
