"""The same load on several sides in turn: each produces, reads locally, copies, drops the local part and reads it cold."""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench import load
from bench.kafka_sides import Side
from confluent_kafka import Consumer, TopicPartition

TOTAL_BYTES: Final = 256 * 1024 * 1024
WARM_UP_BYTES: Final = 160 * 1024 * 1024
SEGMENT_BYTES: Final = 32 * 1024 * 1024
PARTITIONS: Final = 4
ROUNDS: Final = 3
FIRST_BYTES: Final = 41
_GIB: Final = 1024**3
_DEADLINE_S: Final = 300.0

Found = Mapping[str, float]


async def measure_sides(sides: Sequence[Side]) -> dict[str, list[Found]]:
    """Figures of every round of every side, by its name.

    The sides take turns within a round, and who begins changes. A smaller round before them is not counted: a JVM runs
    as it will only after a while, and the others are given as much. Last, every side is asked for first bytes.
    """
    found: dict[str, list[Found]] = {side.name: [] for side in sides}
    for number in range(ROUNDS + 1):
        for side in sides if number % 2 else reversed(sides):
            size = TOTAL_BYTES if number else WARM_UP_BYTES
            figures = await _round(side, f"{side.name}-{number}", size)
            if number:
                found[side.name].append(figures)
    for side in sides:
        found[side.name].append(await _first_bytes(side, f"{side.name}-first"))
    return found


def median(rounds: Sequence[Found], figure: str) -> float:
    """The median of a figure over the rounds that have it."""
    return statistics.median(each[figure] for each in rounds if figure in each)


def ratio(over: Sequence[Found], under: Sequence[Found], figure: str) -> float:
    """The median over the rounds of what one side has over what the other has in the same round."""
    pairs = zip(over, under, strict=True)
    return statistics.median(a[figure] / b[figure] for a, b in pairs if figure in a)


async def _round(side: Side, topic: str, total_bytes: int) -> Found:
    figures = {"produce_mb_s": await _produced(side, topic, total_bytes)}
    count = total_bytes // load.RECORD_BYTES
    ends = {number: (count - number - 1) // PARTITIONS + 1 for number in range(PARTITIONS)}
    local = await asyncio.to_thread(load.consume, side.bootstrap, topic, ends)
    starts, of_copy = await _tiered(side, topic)
    cpu_s = side.cpu_s()
    cold = await asyncio.to_thread(load.consume, side.bootstrap, topic, starts)
    cpu_s = side.cpu_s() - cpu_s
    return {
        **figures,
        **of_copy,
        "local_consume_mb_s": local,
        "cold_consume_mb_s": cold,
        "cold_cpu_s_per_gib": cpu_s * _GIB / _bytes(starts),
    }


async def _first_bytes(side: Side, topic: str) -> Found:
    """On a topic that nobody has read, so that no cache has any of it."""
    await _produced(side, topic, TOTAL_BYTES)
    starts, of_copy = await _tiered(side, topic)
    first = await asyncio.to_thread(_first_bytes_ms, side.bootstrap, topic, starts)
    return {**of_copy, "first_byte_ms_p50": statistics.median(first)}


async def _produced(side: Side, topic: str, total_bytes: int) -> float:
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    await asyncio.to_thread(load.create_topic, side.bootstrap, topic, PARTITIONS, config)
    return await asyncio.to_thread(load.produce, side.bootstrap, topic, PARTITIONS, total_bytes)


async def _tiered(side: Side, topic: str) -> tuple[dict[int, int], Found]:
    """Enables tiering, waits until all rolled segments are remote, then until they are only there.

    Returns: partition -> first local offset, and the figures of the copy.
    """
    started, cpu_s = time.perf_counter(), side.cpu_s()
    await _set(side, topic, "remote.storage.enable", "true")
    starts = await side.copied(topic, PARTITIONS)
    seconds, cpu_s = time.perf_counter() - started, side.cpu_s() - cpu_s
    await _set(side, topic, "local.retention.bytes", "1")
    await side.dropped(topic, starts)
    return starts, {
        "copy_mb_s": _bytes(starts) / 1e6 / seconds,
        "copy_cpu_s_per_gib": cpu_s * _GIB / _bytes(starts),
    }


async def _set(side: Side, topic: str, key: str, value: str) -> None:
    await asyncio.to_thread(load.set_topic_config, side.bootstrap, topic, {key: value})


def _bytes(ends: Mapping[int, int]) -> int:
    """Bytes of the values below these offsets."""
    return sum(ends.values()) * load.RECORD_BYTES


def _first_bytes_ms(bootstrap: str, topic: str, starts: Mapping[int, int]) -> list[float]:
    """Time from asking for a cold offset to its record, for offsets spread over the log; the first is not counted.

    From the end to the beginning, so that what is read ahead of one offset is never what is asked for next.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    found = []
    try:
        for number in reversed(range(FIRST_BYTES)):
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
