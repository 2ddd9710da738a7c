"""Apache Kafka with the plugin, and Aquifer's broker node beside it: the same load, the same client, the same store, one run."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aquifer_core.ids import KafkaUuid
from aquifer_standalone.demo.kafka_tiers import KafkaTierWatch
from aquifer_standalone.demo.tiers import ManagerTierWatch, PartitionTiers, TierWatch
from aquifer_standalone.kafka.cluster import KafkaSettings
from aquifer_standalone.kafka.installation import KafkaUnavailableError, install
from aquifer_standalone.kafka.plugin import plugin_jar
from aquifer_standalone.stack import Stack, StackSettings
from bench import load
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console

TOTAL_BYTES: Final = 256 * 1024 * 1024
WARM_UP_BYTES: Final = 64 * 1024 * 1024
SEGMENT_BYTES: Final = 32 * 1024 * 1024
PARTITIONS: Final = 4
REPEATS: Final = 3
FIRST_BYTES: Final = 41
_DEADLINE_S: Final = 300.0
_INTERVAL_MS: Final = "500"
_QUICK: Final = {
    "remote.log.manager.task.interval.ms": _INTERVAL_MS,
    "log.retention.check.interval.ms": _INTERVAL_MS,
    "log.initial.task.delay.ms": _INTERVAL_MS,
    "log.segment.delete.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: where clients connect, and how its tiers are looked at."""

    name: str
    bootstrap: str
    watch: Callable[[str, dict[int, int]], AbstractAsyncContextManager[TierWatch]]


async def measure() -> Mapping[str, float]:
    try:
        installation, plugin = await install(), await plugin_jar()
    except KafkaUnavailableError as error:
        Console(stderr=True).print(f"kafka is left out: {error}")
        return {}
    folder = Path(tempfile.mkdtemp(prefix="aquifer-bench-"))
    settings = StackSettings(
        data_dir=folder,
        brokers=1,
        kafka=KafkaSettings(installation=installation, plugin=plugin, properties=_QUICK),
        manager={"AQUIFER_MANAGER_TASK_INTERVAL_MS": _INTERVAL_MS},
    )
    try:
        async with Stack(settings) as suite:
            return await _measure_both(suite)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measure_both(suite: Stack) -> dict[str, float]:
    assert suite.kafka is not None
    kafka = Side(
        name="kafka",
        bootstrap=suite.kafka.bootstrap,
        watch=lambda topic, ends: KafkaTierWatch.open(
            suite, topic, _topic_id(kafka.bootstrap, topic), ends
        ),
    )
    broker = Side(
        name="broker",
        bootstrap=suite.bootstrap,
        watch=lambda topic, ends: ManagerTierWatch.open(suite, topic, len(ends)),
    )
    of_kafka = await _measure_side(suite, kafka)
    of_broker = await _measure_side(suite, broker)
    local = of_kafka["local_consume_mb_s"]
    return {
        **of_kafka,
        "copy_over_local_consume": of_kafka["copy_mb_s"] / local,
        "cold_over_local_consume": of_kafka["cold_consume_mb_s"] / local,
        **{
            f"broker.{shown}_over_kafka": of_broker[figure] / of_kafka[figure]
            for shown, figure in (
                ("hot_produce", "produce_mb_s"),
                ("hot_consume", "local_consume_mb_s"),
                ("cold_consume", "cold_consume_mb_s"),
            )
        },
    }


async def _measure_side(suite: Stack, side: Side) -> dict[str, float]:
    await asyncio.to_thread(_warm_up, side.bootstrap)
    topic = f"{side.name}-log"
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    await asyncio.to_thread(load.create_topic, side.bootstrap, topic, PARTITIONS, config)
    produced = await asyncio.to_thread(load.produce, side.bootstrap, topic, PARTITIONS, TOTAL_BYTES)
    count = TOTAL_BYTES // load.RECORD_BYTES
    ends = {number: (count - number - 1) // PARTITIONS + 1 for number in range(PARTITIONS)}
    local = [
        await asyncio.to_thread(load.consume, side.bootstrap, topic, ends) for _ in range(REPEATS)
    ]
    async with side.watch(topic, ends) as tiers:
        copied = await _copy(side, topic, tiers)
        starts = await _drop_local(side, topic, tiers)
    cold = await asyncio.to_thread(load.consume, side.bootstrap, topic, starts)
    storage = suite.supervisor.child("storage")
    await storage.stop()  # with the chunks that it has in memory
    await storage.start()
    first = await asyncio.to_thread(_first_bytes_ms, side.bootstrap, topic, starts)
    return {
        "produce_mb_s": produced,
        "local_consume_mb_s": statistics.median(local),
        "copy_mb_s": copied,
        "cold_consume_mb_s": cold,
        "first_byte_ms_p50": statistics.median(first),
    }


def _warm_up(bootstrap: str) -> None:
    """What a JVM needs before it runs as it will, and is given to the other side too."""
    load.create_topic(bootstrap, "warm-up", PARTITIONS, {})
    load.produce(bootstrap, "warm-up", PARTITIONS, WARM_UP_BYTES)
    last = WARM_UP_BYTES // load.RECORD_BYTES // PARTITIONS
    load.consume(bootstrap, "warm-up", dict.fromkeys(range(PARTITIONS), last))


async def _copy(side: Side, topic: str, tiers: TierWatch) -> float:
    """Enables tiering and waits until all rolled segments are remote: MB/s."""
    started = time.perf_counter()
    config = {"remote.storage.enable": "true"}
    await asyncio.to_thread(load.set_topic_config, side.bootstrap, topic, config)
    states = await _until(
        tiers, lambda state: state.highest_remote_offset > 0 and not state.copy_lag_bytes
    )
    seconds = time.perf_counter() - started
    copied = sum(state.highest_remote_offset + 1 for state in states) * load.RECORD_BYTES
    return copied / 1e6 / seconds


async def _drop_local(side: Side, topic: str, tiers: TierWatch) -> dict[int, int]:
    """Lets local retention drop what is remote: partition -> first local offset."""
    config = {"local.retention.bytes": "1"}
    await asyncio.to_thread(load.set_topic_config, side.bootstrap, topic, config)
    states = await _until(
        tiers, lambda state: state.local_log_start_offset == state.highest_remote_offset + 1
    )
    return {state.partition: state.local_log_start_offset for state in states}


async def _until(
    tiers: TierWatch, done: Callable[[PartitionTiers], bool]
) -> Sequence[PartitionTiers]:
    """Waits until every partition is so."""
    states: Sequence[PartitionTiers] = ()
    async for seen in tiers.until(lambda found: all(map(done, found)), timeout_s=_DEADLINE_S):
        states = seen
    return states


def _first_bytes_ms(bootstrap: str, topic: str, starts: Mapping[int, int]) -> list[float]:
    """Time from asking for a cold offset to its record, for offsets spread over the log; the first is not counted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    found = []
    try:
        for number in range(FIRST_BYTES):
            partition = number % len(starts)
            offset = starts[partition] * number // FIRST_BYTES
            begun = time.perf_counter()
            consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = begun + _DEADLINE_S
            while (message := consumer.poll(1.0)) is None or message.error() is not None:
                if time.perf_counter() > deadline:
                    raise TimeoutError(f"offset {offset} of {topic}-{partition} did not come")
            found.append(1000 * (time.perf_counter() - begun))
    finally:
        consumer.close()
    return found[1:]


def _topic_id(bootstrap: str, topic: str) -> KafkaUuid:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.describe_topics(TopicCollection([topic]), request_timeout=30).values()
    return KafkaUuid.parse(str(future.result(30).topic_id))
