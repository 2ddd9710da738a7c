"""A log much larger than the processes' memory budgets goes out and comes back in bounded memory."""

import asyncio
import hashlib
import time
from collections import Counter
from typing import Final

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = [pytest.mark.xdist_group(E2E_GROUP), pytest.mark.slow, pytest.mark.timeout(240)]

MIB: Final = 1024 * 1024
LOG_BYTES: Final = 1024 * MIB
RECORD_BYTES: Final = 64 * 1024
SEGMENT_BYTES: Final = 64 * MIB
PEAK_GROWTH_BYTES: Final = {
    "broker-1": 200 * MIB,
    "broker-2": 200 * MIB,
    "manager": 100 * MIB,
    "metadata": 40 * MIB,
    # Chunk cache and parts in upload have budgets of 256 MiB each.
    "storage": 600 * MIB,
}
"""What may come on top of the size before; below what the log would take, had it been kept."""


class Peaks:
    """Samples the resident memory of the suite's processes until it is cancelled."""

    def __init__(self, suite: RunningSuite) -> None:
        pids = suite.pids()
        self._processes = {name: psutil.Process(pids[name]) for name in PEAK_GROWTH_BYTES}
        self.before = {name: each.memory_info().rss for name, each in self._processes.items()}
        self.highest: Counter[str] = Counter(self.before)

    async def sample(self) -> None:
        """Sample for ever."""
        while True:
            for name, process in self._processes.items():
                self.highest[name] = max(self.highest[name], process.memory_info().rss)
            await asyncio.sleep(0.05)

    def growth(self) -> dict[str, int]:
        """Bytes on top of what it was before."""
        return {name: self.highest[name] - before for name, before in self.before.items()}


def produce_big(bootstrap: str, topic: str) -> str:
    """Produce the log; the digest of its values."""
    digest = hashlib.sha256()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": MIB,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 32 * 1024,
            "log_level": 0,
        }
    )
    block = hashlib.shake_256(b"big").digest(RECORD_BYTES)
    for number in range(LOG_BYTES // RECORD_BYTES):
        value = number.to_bytes(8, "big") + block[8:]
        digest.update(value)
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert not producer.flush(120)
    return digest.hexdigest()


def consume_big(bootstrap: str, topic: str) -> str:
    """Consume it from the beginning; the digest of the values."""
    digest = hashlib.sha256()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 32 * 1024,
            "log_level": 0,
        }
    )
    expected = 0
    deadline = time.monotonic() + 120
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while expected < LOG_BYTES // RECORD_BYTES:
            assert time.monotonic() < deadline, f"{expected} records in time"
            for message in consumer.consume(500, timeout=1):
                error = message.error()
                if error is not None:
                    assert error.retriable(), error
                    continue
                value = message.value()
                assert message.offset() == expected
                assert value is not None
                digest.update(value)
                expected += 1
    finally:
        consumer.close()
    return digest.hexdigest()


async def test_a_gibibyte_goes_out_and_comes_back_in_bounded_memory(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Memory of every process is a budget, whatever the size of the log (T45, T50)."""
    topic = await topics(segment_bytes=str(SEGMENT_BYTES))
    peaks = Peaks(suite)
    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(peaks.sample())
        produced = await asyncio.to_thread(produce_big, suite.bootstrap, topic.name)
        await topic.until_cold(timeout_s=120)
        consumed = await asyncio.to_thread(consume_big, suite.bootstrap, topic.name)
        sampling.cancel()
    assert consumed == produced
    over = {
        name: f"{grown / MIB:.0f} MiB"
        for name, grown in peaks.growth().items()
        if grown > PEAK_GROWTH_BYTES[name]
    }
    assert not over
