"""Fetch on the wire: bounds, long polls, epochs."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import psutil
import pytest
from aquifer_broker.app import BrokerNode
from aquifer_broker.handlers.fetch_read import FetchPass, FetchTarget
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_broker.protocol.versions import ApiKey
from aquifer_core.formats.record_batch import iter_batches
from fixtures.broker_logs import client_batch
from fixtures.broker_node import StartBroker
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode

BATCH = client_batch(value=b"v" * 900)


@pytest.fixture
async def topic(broker: BrokerNode) -> AsyncIterator[WireTopic]:
    """A topic of ten batches with one record each."""
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(10):
            await topic.produce(BATCH)
        yield topic


@pytest.fixture
async def producer(broker: BrokerNode, topic: WireTopic) -> AsyncIterator[WireTopic]:
    """The same topic over another connection."""
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        yield WireTopic(wire, topic.name, topic.topic_id)


def offsets(records: bytes) -> list[int]:
    return [batch.base_offset for batch in iter_batches(records)]


async def test_a_fetch_starts_at_its_offset_and_tells_the_offsets_of_the_log(
    topic: WireTopic,
) -> None:
    answer = await topic.fetch(4)
    assert offsets(answer.records) == [4, 5, 6, 7, 8, 9]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (
        10,
        10,
        0,
    )
    assert answer.aborted_transactions is None


@pytest.mark.parametrize("version", [4, 11, 13, 17])
async def test_names_and_ids_lead_to_the_same_records(topic: WireTopic, version: int) -> None:
    answer = await topic.fetch(9, version=version, isolation=1)
    assert offsets(answer.records) == [9]
    assert answer.aborted_transactions == ()


async def test_both_limits_bound_an_answer_but_the_first_batch_always_comes(
    topic: WireTopic,
) -> None:
    size = len(BATCH)
    assert offsets((await topic.fetch(0, partition_max_bytes=2 * size)).records) == [0, 1]
    assert offsets((await topic.fetch(0, max_bytes=3 * size)).records) == [0, 1, 2]
    assert len((await topic.fetch(0, max_bytes=1)).records) == size
    assert len((await topic.fetch(0, partition_max_bytes=1)).records) == size


async def test_an_offset_outside_the_log_is_out_of_range(topic: WireTopic) -> None:
    assert (await topic.fetch(11)).error_code is ErrorCode.offset_out_of_range
    assert (await topic.fetch(10)).error_code is ErrorCode.none
    await topic.delete_records(3)
    below = await topic.fetch(2)
    assert below.error_code is ErrorCode.offset_out_of_range
    assert below.log_start_offset == 3


async def test_a_fetch_at_the_end_waits_for_the_next_record(
    topic: WireTopic, producer: WireTopic
) -> None:
    waiting = asyncio.create_task(topic.fetch(10, min_bytes=1, max_wait_ms=600_000))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await producer.produce(BATCH)
    async with asyncio.timeout(60):
        assert offsets((await waiting).records) == [10]


async def test_a_fetch_waits_until_enough_bytes_are_there(
    topic: WireTopic, producer: WireTopic
) -> None:
    enough = 3 * len(BATCH)
    waiting = asyncio.create_task(topic.fetch(10, min_bytes=enough, max_wait_ms=600_000))
    for _ in range(2):
        await producer.produce(BATCH)
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await producer.produce(BATCH)
    async with asyncio.timeout(60):
        assert offsets((await waiting).records) == [10, 11, 12]


async def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_over(
    topic: WireTopic,
) -> None:
    answer = await topic.fetch(9, min_bytes=1_000_000, max_wait_ms=100)
    assert offsets(answer.records) == [9]
    assert (await topic.fetch(10, min_bytes=1, max_wait_ms=100)).records == b""


@pytest.mark.parametrize("limit", ["of the request", "of the broker"])
async def test_a_fetch_does_not_wait_for_more_than_it_can_get(
    start_broker: StartBroker, limit: str
) -> None:
    """As in Kafka the least size is bounded by the greatest; each fetch of a full log would wait its whole time."""
    size = len(BATCH)
    node = await start_broker(fetch_max_bytes=str(3 * size))
    async with KafkaWire(node.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(5):
            await topic.produce(BATCH)
        most = 2 * size if limit == "of the request" else 50_000_000
        async with asyncio.timeout(60):
            answer = await topic.fetch(0, min_bytes=60_000_000, max_bytes=most, max_wait_ms=600_000)
    assert len(answer.records) == min(most, 3 * size)


async def test_an_error_ends_the_wait(topic: WireTopic) -> None:
    async with asyncio.timeout(60):
        answer = await topic.fetch(99, min_bytes=1, max_wait_ms=600_000)
    assert answer.error_code is ErrorCode.offset_out_of_range


async def test_nobody_waits_for_a_client_that_left(broker: BrokerNode, topic: WireTopic) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        left = WireTopic(wire, topic.name, topic.topic_id)
        await left.send_fetch(10, min_bytes=1, max_wait_ms=600_000)
        await eventually(lambda: broker.servers["PLAINTEXT"].busy_count == 1)
    await eventually(lambda: broker.servers["PLAINTEXT"].worker_count == 1)


async def test_a_stopping_broker_answers_long_polls(start_broker: StartBroker) -> None:
    async with AsyncExitStack() as client:
        async with await start_broker(1, stop=True) as node:
            wire = await client.enter_async_context(KafkaWire(node.port("PLAINTEXT")))
            topic = await WireTopic.create(wire)
            await topic.send_fetch(0, min_bytes=1, max_wait_ms=600_000)
            await eventually(lambda: node.servers["PLAINTEXT"].busy_count == 1)
        response = await wire.receive(ApiKey.FETCH, 12)
        # It no longer leads; the client looks for who does.
        answer = response.responses[0].partitions[0]
        assert answer.error_code is ErrorCode.not_leader_or_follower
        with pytest.raises(EOFError):
            await wire.receive_bytes()


async def test_leader_epochs_of_clients_are_checked(topic: WireTopic) -> None:
    assert (await topic.fetch(0, epoch=0)).error_code is ErrorCode.none
    assert (await topic.fetch(0, epoch=1)).error_code is ErrorCode.unknown_leader_epoch


async def test_an_old_leader_epoch_is_fenced_after_a_restart(start_broker: StartBroker) -> None:
    node = await start_broker(1, stop=True)
    async with node, KafkaWire(node.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        await topic.produce(BATCH)
    node = await start_broker(1, stop=True)
    async with node, KafkaWire(node.port("PLAINTEXT")) as wire:
        again = WireTopic(wire, topic.name, topic.topic_id)
        await eventually(lambda: node.view.topics["t"].partitions[0].leader_epoch == 2)
        await node.services.partitions.wait_settled(5)
        assert (await again.fetch(0, epoch=0)).error_code is ErrorCode.fenced_leader_epoch
        diverging = await again.fetch(2, epoch=2, last_epoch=1)
        assert diverging.diverging_epoch.end_offset == 1
        assert offsets((await again.fetch(0)).records) == [0]


async def test_an_unknown_topic_id_and_an_unknown_name_have_codes_of_their_own(
    topic: WireTopic,
) -> None:
    topic.topic_id, topic.name = uuid.uuid4(), "none"
    assert (await topic.fetch(0, version=13)).error_code is ErrorCode.unknown_topic_id
    by_name = await topic.fetch(0, version=12)
    assert by_name.error_code is ErrorCode.unknown_topic_or_partition


async def test_a_partition_that_cannot_be_is_unknown(topic: WireTopic) -> None:
    for version in (12, 13):
        answer = await topic.fetch(0, version=version, partition=-1)
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
    assert offsets((await topic.fetch(9)).records) == [9]


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_fetch_that_waits_does_not_go_on_in_a_new_topic_of_the_same_name(
    broker: BrokerNode, topic: WireTopic, *, by_id: bool
) -> None:
    """A consumer at the end of the old topic would go on in the middle of the new one."""
    hosted = broker.services.partitions.get(topic.name, 0)
    assert hosted is not None
    tip = hosted.topic_id_partition
    target = FetchTarget(
        key=(topic.topic_id if by_id else topic.name, 0),
        topic=tip,
        partition=0,
        fetch_offset=5,
        max_bytes=1_000_000,
    )
    (deleted,) = await broker.services.metadata.delete_topics([topic.name])
    assert deleted.reason is None
    await eventually(lambda: broker.view.topic_by_id(tip.topic_id) is None)
    again = await WireTopic.create(topic.wire)
    for _ in range(10):
        await again.produce(BATCH)

    def fetch_pass() -> FetchPass:
        services, isolation = broker.services, FetchIsolation.HIGH_WATERMARK
        return FetchPass(services, isolation=isolation, is_follower=False, max_bytes=1_000_000)

    read = await fetch_pass().read(target)
    code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    assert (read.error, read.size_bytes) == (code, 0)
    new = broker.services.partitions.get(topic.name, 0)
    assert new is not None
    assert (await fetch_pass().read(replace(target, topic=new.topic_id_partition))).size_bytes


async def test_a_fetch_that_asks_for_a_session_is_served_without_one(topic: WireTopic) -> None:
    await topic.send_fetch(0)
    response = await topic.wire.receive(ApiKey.FETCH, 12)
    assert response.session_id == 0


async def test_a_client_that_does_not_read_is_not_answered_without_end(
    broker: BrokerNode,
) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(10):
            await topic.produce(client_batch(value=bytes(900_000)))
        for _ in range(10):
            await topic.send_fetch(0, partition_max_bytes=9_500_000)
        budget = broker.services.response_budget
        await eventually(lambda: budget.used_bytes > 0)
        held = budget.used_bytes
        assert held < 10_000_000
        for _ in range(10):
            response = await wire.receive(ApiKey.FETCH, 12)
            assert len(response.responses[0].partitions[0].records) > 9_000_000
            assert budget.used_bytes < 10_000_000
    await eventually(lambda: budget.used_bytes == 0)


async def test_fetches_that_wait_for_more_hold_nothing(broker: BrokerNode) -> None:
    """Consumers may wait long for a lot; what each had found was kept meanwhile, and counted nowhere."""
    waiting, batches = 15, 10
    async with AsyncExitStack() as clients:
        wires = [
            await clients.enter_async_context(KafkaWire(broker.port("PLAINTEXT")))
            for _ in range(waiting)
        ]
        topic = await WireTopic.create(wires[0])
        for _ in range(batches):
            await topic.produce(client_batch(value=bytes(1_000_000)))
        log = broker.services.logs.get("t", 0)
        assert log is not None
        before_bytes = psutil.Process().memory_info().rss
        for wire in wires:
            waits = WireTopic(wire, topic.name, topic.topic_id)
            await waits.send_fetch(
                0, min_bytes=40_000_000, partition_max_bytes=40_000_000, max_wait_ms=600_000
            )
        await eventually(lambda: len(log._waiters._callbacks) == waiting)
        grown_bytes = psutil.Process().memory_info().rss - before_bytes
        assert grown_bytes < waiting * batches * 1_000_000 / 2
        assert broker.services.response_budget.used_bytes == 0


async def test_records_count_in_the_budget_of_answers_once_they_were_read(
    start_broker: StartBroker,
) -> None:
    """Reads of several fetches take turns when the disk is slow; each would have got all that is left."""
    node = await start_broker(aquifer_response_max_bytes=str(2**20))
    async with KafkaWire(node.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(10):
            await topic.produce(client_batch(value=bytes(100_000)))
    hosted = node.services.partitions.get("t", 0)
    assert hosted is not None
    target = FetchTarget(
        key=("t", 0),
        topic=hosted.topic_id_partition,
        partition=0,
        fetch_offset=0,
        max_bytes=900_000,
    )
    isolation, budget = FetchIsolation.HIGH_WATERMARK, node.services.response_budget

    def fetch_pass() -> FetchPass:
        return FetchPass(node.services, isolation=isolation, is_follower=False, max_bytes=900_000)

    with fetch_pass() as one, fetch_pass() as two:
        first, second = await one.read(target), await two.read(target)
        assert first.size_bytes == 900_000
        assert second.size_bytes == 2**20 - 900_000
        assert budget.used_bytes == 2**20
        assert (one.cut_short, two.cut_short) == (False, True)
    assert budget.used_bytes == 0


async def test_a_client_that_reads_slowly_is_not_taken_for_an_idle_one(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(20):
            await topic.produce(client_batch(value=bytes(900_000)))
        await topic.send_fetch(0, partition_max_bytes=20_000_000)
        budget = broker.services.response_budget
        await eventually(lambda: budget.used_bytes > 0)
        (connection,) = broker.servers["PLAINTEXT"]._connections
        loop = asyncio.get_running_loop()

        async def more_was_read_since(before_s: float) -> bool:
            await wire.read_some(500_000)
            return not connection.is_idle_since(before_s)

        await eventually(lambda: not connection._drained.is_set())
        before_s = loop.time()
        assert connection.is_idle_since(before_s)
        await eventually(lambda: more_was_read_since(before_s))
        assert budget.used_bytes > 0
