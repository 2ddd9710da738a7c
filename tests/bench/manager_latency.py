"""How long single things take: the first byte of a cold read, an offset by time, and producing beside cold readers."""

import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aquifer.common.v1 import partition_pb2
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import RemoteLogManagerServiceStub
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as facts
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import RemoteLogMetadataServiceStub
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import connect
from aquifer_standalone.stack import Stack
from bench import load
from bench.loop_watch import WatchedStack
from bench.tiered_topics import restart
from confluent_kafka import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from aquifer.manager.v1.remote_log_manager_service_pb2_grpc import (
        RemoteLogManagerServiceAsyncStub,
    )
    from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
        RemoteLogMetadataServiceAsyncStub,
    )

_CALL_S = 60.0
_POLL_S = 0.2
_OFFSETS_BY_TIME = 200
_READERS = 8
_PACED_RECORDS_PER_S = 4000
_PRODUCE_PAUSE_S = 0.005
_HOT_TOPIC = "hot-beside-cold"
_LOCAL_TOPIC = "local-beside-hot"
_LOCAL_BYTES = 64 << 20


async def measure_latencies(suite: Stack, topic: str) -> Mapping[str, float]:
    """Of reads through the manager, the first ones of each segment with nothing in any cache."""
    await restart(suite, "storage", "manager")
    cold, warm = await _first_bytes(suite, topic)
    by_time = await asyncio.to_thread(_offsets_by_time, suite.bootstrap, topic)
    return {
        "first_byte_ms_p50": percentile(cold, 50),
        "first_byte_ms_p99": percentile(cold, 99),
        "first_byte_cached_index_ms_p50": percentile(warm, 50),
        "first_byte_cached_index_ms_p99": percentile(warm, 99),
        "offset_for_time_ms_p50": percentile(by_time, 50),
        "offset_for_time_ms_p99": percentile(by_time, 99),
    }


async def measure_hot_beside_cold(
    suite: WatchedStack, cold_topic: str, *, seconds: float, rounds: int
) -> Mapping[str, float]:
    """p99 of producing with eight cold readers at work over p99 without, taking turns: at full speed, and at 4 MB/s each.

    Eight readers of local records at full speed are what the first is to be judged by: they want processors, too, and nothing of tiering.
    Beside it, what the broker's event loop saw: the processor time of its passes is the broker's own part, how late it wakes also contains
    waiting for a processor.
    """
    await asyncio.to_thread(load.create_topic, suite.bootstrap, _HOT_TOPIC, 1, {})
    await asyncio.to_thread(load.create_topic, suite.bootstrap, _LOCAL_TOPIC, 1, {})
    await asyncio.to_thread(load.produce, suite.bootstrap, _LOCAL_TOPIC, 1, _LOCAL_BYTES)
    await asyncio.to_thread(produce_latencies, suite.bootstrap, _HOT_TOPIC, min(seconds, 2.0))
    without, beside, local, paced = [], [], [], []
    for _ in range(rounds):
        without.append(await _produced(suite, seconds))
        with _readers(suite.bootstrap, cold_topic):
            beside.append(await _produced(suite, seconds))
        with _readers(suite.bootstrap, _LOCAL_TOPIC):
            local.append(await _produced(suite, seconds))
        with _readers(suite.bootstrap, cold_topic, _PACED_RECORDS_PER_S):
            paced.append(await _produced(suite, seconds))
    alone, busy = _medians(without), _medians(beside)
    return {
        "hot_p99_ms": alone["produce"],
        "hot_p99_with_cold_ms": busy["produce"],
        "hot_p99_with_cold_over_without": _produce_over(beside, without),
        "hot_p99_with_local_readers_ms": _medians(local)["produce"],
        "hot_p99_with_local_readers_over_without": _produce_over(local, without),
        "hot_p99_with_cold_over_with_local_readers": _produce_over(beside, local),
        "hot_p99_with_paced_cold_ms": _medians(paced)["produce"],
        "hot_p99_with_paced_cold_over_without": _produce_over(paced, without),
        "broker_loop_pass_cpu_ms_p99": alone["pass_cpu_ms"],
        "broker_loop_pass_cpu_with_cold_ms_p99": busy["pass_cpu_ms"],
        "broker_loop_late_ms_p99": alone["late_ms"],
        "broker_loop_late_with_cold_ms_p99": busy["late_ms"],
    }


async def _produced(suite: WatchedStack, seconds: float) -> dict[str, float]:
    """p99 of producing, and of what the broker's loop saw meanwhile."""
    await suite.seen()
    took_ms = await asyncio.to_thread(produce_latencies, suite.bootstrap, _HOT_TOPIC, seconds)
    return {
        "produce": percentile(took_ms, 99),
        **{name: percentile(values, 99) for name, values in (await suite.seen()).items()},
    }


def _produce_over(
    these: Sequence[Mapping[str, float]], others: Sequence[Mapping[str, float]]
) -> float:
    """Median over the rounds."""
    return statistics.median(
        each["produce"] / other["produce"] for each, other in zip(these, others, strict=True)
    )


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


async def _first_bytes(suite: Stack, topic: str) -> tuple[list[float], list[float]]:
    """Milliseconds to the first record bytes: of the first read in each segment, and of a later one elsewhere in it."""
    async with (
        connect([suite.address("manager")]) as manager,
        connect([suite.address("metadata")]) as metadata,
    ):
        stub = RemoteLogManagerServiceStub(manager)
        cold, warm = [], []
        for request, middle in await _reads(stub, RemoteLogMetadataServiceStub(metadata), topic):
            cold.append(await _first_byte_ms(stub, request))
            request.fetch_offset = middle
            warm.append(await _first_byte_ms(stub, request))
        return cold, warm


async def _reads(
    stub: "RemoteLogManagerServiceAsyncStub",
    facts_stub: "RemoteLogMetadataServiceAsyncStub",
    topic: str,
) -> list[tuple[pb.FetchRequest, int]]:
    """A read of the start of every remote segment, and an offset near its end."""
    found = []
    tips: list[partition_pb2.TopicIdPartition] = []
    async with asyncio.timeout(_CALL_S):
        # A manager that was just restarted hears of the partitions from the broker.
        while not tips:
            await asyncio.sleep(_POLL_S)
            listing = pb.ListPartitionsRequest(topic=topic)
            tips = [
                state.topic_id_partition
                async for page in call_stream(stub.ListPartitions, listing, deadline_s=_CALL_S)
                for state in page.partitions
            ]
    for tip in tips:
        wanted = facts.ListRemoteLogSegmentsRequest(topic_id_partition=tip)
        async for page in call_stream(facts_stub.ListRemoteLogSegments, wanted, deadline_s=_CALL_S):
            for segment in page.segments:
                epochs = sorted(segment.segment_leader_epochs.items())
                request = pb.FetchRequest(
                    topic_id_partition=tip,
                    leader_epoch=epochs[0][0],
                    fetch_offset=segment.start_offset,
                    max_bytes=1,
                    min_one_batch=True,
                    lineage=[
                        partition_pb2.LeaderEpochEntry(epoch=epoch, start_offset=start)
                        for epoch, start in epochs
                    ],
                )
                length = segment.end_offset - segment.start_offset
                found.append((request, segment.start_offset + length * 9 // 10))
    random.Random(1).shuffle(found)
    return found


async def _first_byte_ms(
    stub: "RemoteLogManagerServiceAsyncStub", request: pb.FetchRequest
) -> float:
    started = time.perf_counter()
    took_ms = 0.0
    async for message in call_stream(stub.Fetch, request, deadline_s=_CALL_S):
        if not took_ms and message.WhichOneof("message") == "data":
            took_ms = (time.perf_counter() - started) * 1000
    if not took_ms:
        raise RuntimeError(f"nothing came for {request.fetch_offset}")
    return took_ms


def _offsets_by_time(bootstrap: str, topic: str) -> list[float]:
    """Milliseconds of ListOffsets by time, at random times of the remote part of partition 0, through the broker."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        first = _timestamp_at(consumer, topic, 0)
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_CALL_S)
        last = _timestamp_at(consumer, topic, end * 3 // 4)
        source = random.Random(2)
        took = []
        for _ in range(_OFFSETS_BY_TIME):
            wanted = TopicPartition(topic, 0, source.randint(first, max(first, last)))
            started = time.perf_counter()
            consumer.offsets_for_times([wanted], timeout=_CALL_S)
            took.append((time.perf_counter() - started) * 1000)
        return took
    finally:
        consumer.close()


def _timestamp_at(consumer: Consumer, topic: str, offset: int) -> int:
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(_CALL_S)
    if message is None or message.error() is not None:
        raise RuntimeError(f"no record at {offset}: {message and message.error()}")
    consumer.unassign()
    return int(message.timestamp()[1])


def produce_latencies(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """Milliseconds from handing over a record to its acknowledgement, at a steady pace."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    value, took = b"x" * load.RECORD_BYTES, []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        handed_s = time.perf_counter()

        def done(error: object, _message: object, handed_s: float = handed_s) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            took.append((time.perf_counter() - handed_s) * 1000)

        producer.produce(topic, value, on_delivery=done)
        producer.poll(_PRODUCE_PAUSE_S)
    if producer.flush(_CALL_S):
        raise RuntimeError("records were not acknowledged")
    return took


@contextmanager
def _readers(bootstrap: str, topic: str, pace: int | None = None) -> Iterator[None]:
    """Eight consumers in a process of their own, each reading the beginning again and again, or so many records a second."""
    argv = [sys.executable, "-m", "bench.topic_readers", bootstrap, topic, str(_READERS)]
    if pace is not None:
        argv.append(str(pace))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "reading":
                raise RuntimeError("the readers did not begin")
            yield
        finally:
            process.terminate()
            process.wait(_CALL_S)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
