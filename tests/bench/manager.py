"""The manager's part of the work: cold reads over hot ones, first bytes, outages, backlogs, and doing nothing."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from aquifer_standalone.stack import Stack, StackSettings
from bench.loop_watch import WatchedStack
from bench.manager_backlog import measure_backlog
from bench.manager_cold import measure_cold, tier_topic
from bench.manager_idle import measure_idle
from bench.manager_latency import measure_hot_beside_cold, measure_latencies
from bench.manager_outages import measure_cold_without_metadata, measure_outages

MIB = 1024 * 1024
AnyStack = TypeVar("AnyStack", bound=Stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        topic_bytes: of each of these topics.
        rounds: how often hot and cold, or with and without, take turns.
        produce_s: for how long latency is taken in a round.
        backlog_segments: rolled before tiering is enabled.
        idle_partitions: announced to a manager that then has nothing to do.
        idle_s: for how long it is watched.
    """

    topic_bytes: int = 384 * MIB
    rounds: int = 3
    produce_s: float = 4.0
    backlog_segments: int = 1000
    backlog_segment_bytes: int = MIB
    idle_partitions: int = 10_000
    idle_s: float = 40.0


TINY = Sizes(
    topic_bytes=64 * MIB,
    rounds=1,
    produce_s=1.0,
    backlog_segments=20,
    idle_partitions=200,
    idle_s=3.0,
)
"""Tries out whether everything works; the figures mean nothing."""
_EAGER = {"AQUIFER_MANAGER_TASK_INTERVAL_MS": "500"}


async def cold(sizes: Sizes, partitions: int) -> Mapping[str, float]:
    """One consumer of a topic, hot and cold, while tasks run as often as they do by default."""
    async with _suite() as suite:
        return await measure_cold(
            suite, partitions, total_bytes=sizes.topic_bytes, rounds=sizes.rounds
        )


async def latency(sizes: Sizes) -> Mapping[str, float]:
    """First bytes, offsets by time, and producing beside cold readers."""
    async with _running(WatchedStack, _EAGER) as suite:
        topic = await tier_topic(suite, 1, total_bytes=sizes.topic_bytes)
        figures = dict(await measure_latencies(suite, topic))
        figures |= await measure_hot_beside_cold(
            suite, topic, seconds=sizes.produce_s, rounds=sizes.rounds
        )
        return figures


async def backlog(sizes: Sizes) -> Mapping[str, float]:
    """Draining what was rolled before tiering was enabled."""
    async with _suite() as suite:
        return await measure_backlog(
            suite, segments=sizes.backlog_segments, segment_bytes=sizes.backlog_segment_bytes
        )


async def idle(sizes: Sizes) -> Mapping[str, float]:
    """Partitions with nothing in them."""
    async with _suite() as suite:
        return await measure_idle(suite, partitions=sizes.idle_partitions, seconds=sizes.idle_s)


async def outages(sizes: Sizes) -> Mapping[str, float]:
    """Producing while something below the brokers is down, and cold reads while metadata is."""
    async with _suite() as suite:
        produced = await measure_outages(suite, seconds=sizes.produce_s, rounds=sizes.rounds)
    async with _suite() as suite:
        read = await measure_cold_without_metadata(
            suite, total_bytes=sizes.topic_bytes, rounds=sizes.rounds
        )
    return {**produced, **read}


def parts(sizes: Sizes) -> Mapping[str, Callable[[], Awaitable[Mapping[str, float]]]]:
    """What can be measured by itself, each on a suite of one broker of its own."""
    return {
        **{f"cold_{count}p": partial(cold, sizes, count) for count in (1, 8, 64)},
        "latency": partial(latency, sizes),
        "outages": partial(outages, sizes),
        "backlog": partial(backlog, sizes),
        "idle": partial(idle, sizes),
    }


PARTS = parts(Sizes())


@asynccontextmanager
async def _suite(**manager: str) -> AsyncIterator[Stack]:
    async with _running(Stack, manager) as suite:
        yield suite


@asynccontextmanager
async def _running(kind: type[AnyStack], manager: Mapping[str, str]) -> AsyncIterator[AnyStack]:
    folder = Path(tempfile.mkdtemp(prefix="aquifer-bench-"))
    try:
        async with kind(StackSettings(data_dir=folder, brokers=1, manager=manager)) as suite:
            yield suite
    finally:
        shutil.rmtree(folder, ignore_errors=True)
