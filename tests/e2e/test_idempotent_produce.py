"""Idempotent producers: no record twice, whatever is repeated, also when their state lies in the cold part."""

import asyncio
import datetime
import time
from typing import Any

import pytest
from aquifer_broker.protocol.versions import ApiKey
from aquifer_core.formats.records import Record as LogRecord
from aquifer_core.formats.records import encode_batch
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.kafka_wire import KafkaWire
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic, TieredTopic
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def test_an_idempotent_producer_is_tiered_and_read_back(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """librdkafka with `enable.idempotence` and several requests in flight."""
    topic = await topics()
    acked = await asyncio.to_thread(
        produce, suite.bootstrap, topic.name, records_of(600), enable_idempotence=True
    )
    assert [record.offset for record in acked] == list(range(600))
    offsets = await topic.until_cold()
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end), acked)


async def test_a_repeated_batch_is_known_although_it_is_cold_and_the_broker_restarted(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """The answer is the first one's offset; a gap in sequences is refused (KIP-98)."""
    topic = await topics()
    producer_id = await new_producer_id(topic)
    offsets = [await send(topic, producer_id, sequence) for sequence in range(3)]
    assert offsets == [(ErrorCode.none, 0), (ErrorCode.none, 1), (ErrorCode.none, 2)]
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(200))
    before = await topic.until_cold()
    await suite.restart(f"broker-{topic.leaders[0]}")
    assert await send(topic, producer_id, 2) == (ErrorCode.none, 2)
    assert (await topic.offsets()).end == before.end
    error, _ = await send(topic, producer_id, 7)
    assert error is ErrorCode.out_of_order_sequence_number
    assert await send(topic, producer_id, 3) == (ErrorCode.none, before.end)


async def new_producer_id(topic: TieredTopic) -> int:
    """Ask for a producer id."""
    async with KafkaWire(topic.port()) as wire:
        request = {
            "transactional_id": None,
            "transaction_timeout": datetime.timedelta(seconds=1),
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
    producer_id: int = answer.producer_id
    return producer_id


async def send(topic: TieredTopic, producer_id: int, sequence: int) -> tuple[ErrorCode, int]:
    """Produce one batch of one record with this sequence; (error, base offset)."""
    batch = encode_batch(
        [LogRecord(offset=0, timestamp_ms=time.time_ns() // 1_000_000, value=b"%d" % sequence)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    request: dict[str, Any] = {
        "transactional_id": None,
        "acks": -1,
        "timeout": datetime.timedelta(seconds=10),
        "topic_data": [{"name": topic.name, "partition_data": [{"index": 0, "records": batch}]}],
    }
    async with KafkaWire(topic.port()) as wire:
        answer = await wire.ask(ApiKey.PRODUCE, 9, request)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset
