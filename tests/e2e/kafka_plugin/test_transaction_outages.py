"""Apache Kafka with the plugin: transactions whose brokers were away for a while, or whose log took nothing, read from remote storage."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest
from fixtures.kafka_cluster import KAFKA_GROUP, SETTLE_S, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_java_clients import JavaClients, JavaProducer, group_alone
from fixtures.kafka_java_process import JavaError
from fixtures.kafka_transactions import (
    Seen,
    epochs,
    remote_batches,
    seen_from_remote,
    transaction_version,
)
from fixtures.polling import eventually

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])

_TIMEOUT: Final = "TimeoutException"
_BLOCK_MS: Final = 3000
_DELIVERY_MS: Final = 4000
_ATTEMPTS: Final = 20

Call = Callable[[], Awaitable[None]]


async def until_done(call: Call) -> None:
    """Repeat a call that may run out of time, as its producer may."""

    async def done() -> bool:
        await call()
        return True

    await eventually(done, timeout_s=SETTLE_S)


async def assert_times_out(call: Call) -> None:
    with pytest.raises(JavaError) as refused:
        await call()
    assert refused.value.names[0] == _TIMEOUT


async def assert_fenced(call: Call) -> None:
    with pytest.raises(JavaError) as refused:
        await call()
    assert refused.value.names[0] in ("ProducerFencedException", "InvalidProducerEpochException")


async def delivered(
    producer: JavaProducer, topic: KafkaTopic, value: str, partitions: Sequence[int]
) -> dict[int, int]:
    """Begin a transaction with a record in each of these partitions; anew when a record ran out of time. Their offsets."""
    for _ in range(_ATTEMPTS):
        await producer.begin()
        try:
            return {
                partition: (await producer.send(topic.name, value, partition=partition))[0]
                for partition in partitions
            }
        except JavaError as error:
            if _TIMEOUT not in error.names:
                raise
            await until_done(producer.abort)
    raise AssertionError(f"nothing was delivered in {_ATTEMPTS} attempts")


async def test_calls_that_ran_out_of_time_are_repeated_when_the_brokers_are_back(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """initTransactions, sendOffsetsToTransaction, commitTransaction and abortTransaction, all brokers being away."""
    names = ["init", "send_offsets", "commit", "abort"]
    topic = await kafka_topics(assignment=((1,), (2,), (1,), (2,)))
    init, send_offsets, commit, abort = producers = [
        await java_clients.producer(f"{topic.name}-{name}", max_block_ms=_BLOCK_MS)
        for name in names
    ]
    sent: dict[int, int] = {}
    for partition, producer in enumerate(producers):
        if producer is not init:
            await until_done(producer.init)
            sent |= await delivered(producer, topic, "value", [partition])

    async def offsets() -> None:
        await send_offsets.send_offsets(topic.name, 7, group_alone(topic.name))

    calls: list[Call] = [init.init, offsets, commit.commit, abort.abort]
    with kafka_suite.paused("kafka-1"), kafka_suite.paused("kafka-2"):
        await asyncio.gather(*(assert_times_out(call) for call in calls))
    for call in calls:
        await until_done(call)
    sent |= await delivered(init, topic, "value", [0])
    for producer in (init, send_offsets):
        await until_done(producer.commit)
    found = await asyncio.gather(
        *(seen_from_remote(java_clients, topic, sent[each] + 2, each) for each in sorted(sent))
    )
    assert {name: seen.committed for name, seen in zip(names, found, strict=True)} == {
        "init": ["value"],
        "send_offsets": ["value"],
        "commit": ["value"],
        "abort": [],
    }
    assert all("value" in seen.everything for seen in found)
    group = await java_clients.consumer(topic.name, "read_committed", group_id=topic.name)
    assert await group.committed() == (7, None, "")


@VERSIONS
async def test_a_record_that_ran_out_of_time_costs_the_producer_its_epoch(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients, version: int
) -> None:
    """Before, the epoch is the same in each transaction (version 1) or another one in each (version 2)."""
    topic = await kafka_topics(assignment=((2,), (1,)))
    limits = {"delivery_timeout_ms": _DELIVERY_MS, "request_timeout_ms": _DELIVERY_MS - 1000}
    async with transaction_version(kafka_suite, version):
        producer = await java_clients.producer(topic.name, **limits)
        await producer.init()
        await delivered(producer, topic, "first", [0, 1])
        await producer.commit()
        await delivered(producer, topic, "aborted", [0, 1])
        with kafka_suite.paused("kafka-2"):
            await assert_times_out(lambda: _send(producer, topic))
        await producer.abort()
        last = await delivered(producer, topic, "last", [0, 1])
        await producer.commit()
    for partition in (0, 1):
        seen = await seen_from_remote(java_clients, topic, last[partition] + 2, partition)
        assert seen.committed == ["first", "last"]
        assert "aborted" in seen.everything
    found = epochs(await remote_batches(topic, partition=1))
    assert found == sorted(found)
    assert found[-1] > found[-2]
    if len(found) == 3:
        # A slow machine had to abort further transactions, each of which costs an epoch.
        assert (found[1] > found[0]) is (version == 2)


async def _send(producer: JavaProducer, topic: KafkaTopic) -> None:
    await producer.send(topic.name, "lost")


@VERSIONS
async def test_fencing_that_failed_halfway_is_not_done_twice(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients, version: int
) -> None:
    """The epoch in remote storage is the one that a producer gets whose predecessor was fenced at once (KIP-360)."""
    topic = await kafka_topics(assignment=((1,), (1,)))
    failing, smooth = (f"{topic.name}-{name}" for name in ("failing", "smooth"))
    async with transaction_version(kafka_suite, version):
        first = [await java_clients.producer(each) for each in (failing, smooth)]
        for partition, producer in enumerate(first):
            await producer.init()
            await producer.begin()
            assert await producer.send(topic.name, "aborted", partition=partition) == [0]
        async with transactions_kept_from_their_log(kafka_suite, java_clients):
            for _ in range(2):
                second = await java_clients.producer(failing)
                with pytest.raises(JavaError):
                    await second.init()
        if version == 1:
            # In the coordinator's memory it is fenced all the same; with version 2 it is not.
            await assert_fenced(first[0].commit)
        for partition, each in enumerate((failing, smooth)):
            third = await java_clients.producer(each)
            await third.init()
            await third.begin()
            assert await third.send(topic.name, "committed", partition=partition) == [2]
            await third.commit()
            await assert_fenced(first[partition].commit)
    expected = Seen(committed=["committed"], everything=["aborted", "committed"])
    for partition in (0, 1):
        assert await seen_from_remote(java_clients, topic, 4, partition) == expected
    bumped, normal = [epochs(await remote_batches(topic, each)) for each in (0, 1)]
    assert bumped[0] < bumped[1]
    assert bumped == normal


@asynccontextmanager
async def transactions_kept_from_their_log(
    suite: KafkaSuite, clients: JavaClients
) -> AsyncIterator[None]:
    """Let the coordinator write nothing for the block: its topic takes no batch of any size."""
    log = KafkaTopic(suite, "__transaction_state", 1)
    numbers = iter(range(1_000_000))

    async def writes() -> bool:
        probe = await clients.producer(f"probe-{id(log)}-{next(numbers)}")
        try:
            await probe.init()
        except JavaError:
            return False
        finally:
            await clients.close(probe.name)
        return True

    async def is_kept() -> bool:
        return not await writes()

    await log.alter(max_message_bytes="1")
    try:
        await eventually(is_kept, timeout_s=SETTLE_S)
        yield
    finally:
        await log.alter(max_message_bytes=None)
        await eventually(writes, timeout_s=SETTLE_S)
