"""ListOffsets on the wire (K-3.9)."""

from collections.abc import AsyncIterator

import pytest
from aquifer_broker.app import BrokerNode
from fixtures.broker_logs import client_batch
from fixtures.kafka_wire import KafkaWire
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode

T = 1_700_000_000_000


@pytest.fixture
async def topic(broker: BrokerNode) -> AsyncIterator[WireTopic]:
    """Four batches of one record; the largest timestamp is the third one's. The log begins at 1."""
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire, retention_ms="-1")
        for timestamp in (T, T + 10, T + 30, T + 20):
            await topic.produce(client_batch(timestamp_ms=timestamp))
        await topic.delete_records(1)
        yield topic


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (4, -1)),
        (-2, (1, -1)),
        (-3, (2, T + 30)),
        (-4, (1, -1)),
        (-5, (-1, -1)),
        (-6, (-1, -1)),
        (0, (1, T + 10)),
        (T + 10, (1, T + 10)),
        (T + 11, (2, T + 30)),
        (T + 30, (2, T + 30)),
        (T + 31, (-1, -1)),
    ],
)
async def test_a_consumer_asks_for_offsets(
    topic: WireTopic, timestamp: int, expected: tuple[int, int]
) -> None:
    """SR-26, SR-27: not found is no error; without tiering nothing is tiered."""
    answer = await topic.offset(timestamp)
    assert answer.error_code is ErrorCode.none
    assert (answer.offset, answer.timestamp) == expected
    assert answer.leader_epoch == (0 if answer.offset >= 0 else -1)


async def test_a_replica_that_asks_for_minus_three_gets_the_first_local_offset(
    topic: WireTopic,
) -> None:
    """SR-27."""
    answer = await topic.offset(-3, replica_id=2)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.none, 1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-99, 11)]
)
async def test_a_question_that_the_version_does_not_have_is_refused(
    topic: WireTopic, timestamp: int, version: int
) -> None:
    answer = await topic.offset(timestamp, version=version)
    assert answer.error_code is ErrorCode.unsupported_version
    assert answer.offset == -1


async def test_records_below_a_new_log_start_are_gone(topic: WireTopic) -> None:
    """SR-25."""
    deleted = await topic.delete_records(3)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.none, 3)
    assert (await topic.offset(-2)).offset == 3
    assert (await topic.delete_records(2)).low_watermark == 3
    assert (await topic.delete_records(-1)).low_watermark == 4
    assert (await topic.offset(-2)).offset == 4


@pytest.mark.parametrize("offset", [5, -2])
async def test_records_that_do_not_exist_cannot_be_deleted(topic: WireTopic, offset: int) -> None:
    answer = await topic.delete_records(offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.offset_out_of_range, -1)


async def test_records_of_a_compacted_topic_are_not_deleted(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire, cleanup_policy="compact")
        assert (await topic.delete_records(0)).error_code is ErrorCode.policy_violation
