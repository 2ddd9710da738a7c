"""Apache Kafka with the plugin: what producers that were replaced or came too late have written stays aborted in remote storage."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest
from aquifer_broker.protocol.versions import ApiKey
from fixtures.kafka_cluster import KAFKA_GROUP, SETTLE_S, KafkaSuite, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_java_clients import JavaClients, JavaProducer, group_alone
from fixtures.kafka_java_process import JavaError
from fixtures.kafka_transactions import (
    Seen,
    seen_from_remote,
    transaction_version,
)
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from kio.schema.errors import ErrorCode

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]

VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])

FENCED: Final = ("ProducerFencedException", "InvalidProducerEpochException")
"""What a replaced producer is told, by the coordinator and by leaders."""

_TIMEOUTS_MS: Final = (2000, 10_000, 50_000)
"""Of transactions that expire; the next one is tried when the one before it was too short."""

Call = Callable[[JavaProducer, KafkaTopic, int], Awaitable[object]]


async def _send_anew(producer: JavaProducer, topic: KafkaTopic, partition: int) -> None:
    await producer.begin()
    await producer.send(topic.name, "late", partition=partition)


CALLS: Final[dict[str, Call]] = {
    "commit": lambda producer, _, __: producer.commit(),
    "abort": lambda producer, _, __: producer.abort(),
    "send": lambda producer, topic, partition: producer.send(
        topic.name, "late", partition=partition
    ),
    "send_offsets": lambda producer, topic, partition: producer.send_offsets(
        topic.name, 1, group_alone(topic.name), partition=partition
    ),
    "add_partitions": _send_anew,
}
"""What the replaced producer tries; the last one after it has ended its own transaction."""


async def assert_refused(call: Awaitable[object], *errors: str) -> None:
    with pytest.raises(JavaError) as refused:
        await call
    assert set(errors) & set(refused.value.names), refused.value


async def replace_and_try(
    clients: JavaClients, topic: KafkaTopic, partition: int, name: str
) -> None:
    """A producer with an open transaction, another one with its id, then a call of the first: four offsets in all."""
    transactional_id = f"{topic.name}-{name}"
    first = await clients.producer(transactional_id)
    await first.init()
    await first.begin()
    assert await first.send(topic.name, "aborted", partition=partition) == [0]
    if name == "add_partitions":
        await first.abort()
    second = await clients.producer(transactional_id)
    await second.init()
    await second.begin()
    assert await second.send(topic.name, "committed", partition=partition) == [2]
    await assert_refused(CALLS[name](first, topic, partition), *FENCED)
    await second.commit()


@VERSIONS
async def test_a_producer_is_fenced_by_the_next_one_with_its_id(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients, version: int
) -> None:
    """Whatever the first one calls, it is refused, and only the second one's record is committed."""
    topic = await kafka_topics(assignment=((1,), (2,), (1,), (2,), (1,)))
    async with transaction_version(kafka_suite, version):
        for partition, name in enumerate(CALLS):
            await replace_and_try(java_clients, topic, partition, name)
    found = await asyncio.gather(
        *(seen_from_remote(java_clients, topic, 4, each) for each in range(len(CALLS)))
    )
    expected = Seen(committed=["committed"], everything=["aborted", "committed"])
    assert dict(zip(CALLS, found, strict=True)) == dict.fromkeys(CALLS, expected)


async def test_an_old_epoch_cannot_be_begun_with_again(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """The same producer id with an epoch that was passed on (InitProducerId, KIP-360)."""
    topic = await kafka_topics()
    producer_ids = set()
    for value in ("1", "2"):
        producer = await java_clients.producer(topic.name)
        await producer.init()
        await producer.begin()
        await producer.send(topic.name, value)
        await producer.commit()
        _, producer_id, epoch = await java_clients.transaction(topic.name)
        producer_ids.add(producer_id)
    assert len(producer_ids) == 1
    assert epoch > 0

    async def refused() -> ErrorCode | None:
        """None while the coordinator still completes the last commit, and says so."""
        error = await _init_again(kafka_suite, topic.name, producer_id, epoch=0)
        return None if error is ErrorCode.concurrent_transactions else error

    assert await eventually(refused) is ErrorCode.producer_fenced
    seen = await seen_from_remote(java_clients, topic, end=4)
    assert seen.committed == seen.everything == ["1", "2"]


async def _init_again(
    suite: KafkaSuite, transactional_id: str, producer_id: int, epoch: int
) -> ErrorCode:
    request = {
        "transactional_id": transactional_id,
        "transaction_timeout": timedelta(seconds=60),
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
    found = []
    for broker_id in suite.cluster.broker_ids:
        port = int(suite.cluster.address(broker_id).rpartition(":")[2])
        async with KafkaWire(port) as wire:
            answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        if answer.error_code is not ErrorCode.not_coordinator:
            found.append(answer.error_code)
    [error] = found
    assert isinstance(error, ErrorCode)
    return error


async def expiring(
    clients: JavaClients, transactional_id: str, topic: KafkaTopic, partition: int
) -> tuple[JavaProducer, int]:
    """A producer with a transaction that expires soon, and the offset of its record; on a slow machine later."""
    for timeout_ms in _TIMEOUTS_MS:
        producer = await clients.producer(transactional_id, transaction_timeout_ms=timeout_ms)
        await producer.init()
        await producer.begin()
        try:
            return producer, (await producer.send(topic.name, "expired", partition=partition))[0]
        except JavaError as error:
            if not set(FENCED) & set(error.names):
                raise
    raise AssertionError("the transaction expired each time before its first record was there")


@VERSIONS
async def test_a_transaction_that_expired_can_neither_go_on_nor_be_committed(
    kafka_suite: KafkaSuite, kafka_topics: MakeKafkaTopic, java_clients: JavaClients, version: int
) -> None:
    topic = await kafka_topics(assignment=((1,), (2,)))
    ids = [f"{topic.name}-{partition}" for partition in (0, 1)]
    async with transaction_version(kafka_suite, version):
        going_on, offset = await expiring(java_clients, ids[0], topic, 0)
        committing, _ = await expiring(java_clients, ids[1], topic, 1)

        async def expired() -> bool:
            states = [(await java_clients.transaction(each))[0] for each in ids]
            return states == ["COMPLETE_ABORT", "COMPLETE_ABORT"]

        await eventually(expired, timeout_s=SETTLE_S, interval_s=0.1)
        await assert_refused(going_on.send(topic.name, "late"), *FENCED)
        await assert_refused(committing.commit(), *FENCED, "InvalidTxnStateException")
        fresh = await java_clients.producer(ids[1])
        await fresh.init()
        await fresh.begin()
        [last] = await fresh.send(topic.name, "committed", partition=1)
        await fresh.commit()
    # The late record was not written: the marker is the last thing there.
    seen = await seen_from_remote(java_clients, topic, offset + 2)
    assert seen.committed == []
    assert set(seen.everything) == {"expired"}
    seen = await seen_from_remote(java_clients, topic, last + 2, partition=1)
    assert seen.committed == ["committed"]
    assert set(seen.everything) == {"expired", "committed"}
