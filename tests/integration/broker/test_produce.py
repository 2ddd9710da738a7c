"""Produce on the wire: what is taken, what is refused, and with which code."""

import uuid
from collections.abc import AsyncIterator

import pytest
from aquifer_broker.app import BrokerNode
from fixtures.broker_logs import client_batch
from fixtures.broker_node import StartBroker
from fixtures.kafka_wire import KafkaWire
from fixtures.polling import eventually
from fixtures.wire_topic import WireTopic
from kio.schema.errors import ErrorCode


@pytest.fixture
async def topic(broker: BrokerNode) -> AsyncIterator[WireTopic]:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        yield await WireTopic.create(wire)


def end_offset(broker: BrokerNode, topic: str = "t") -> int:
    hosted = broker.services.partitions.get(topic, 0)
    assert hosted is not None
    return hosted.log.log_end_offset


@pytest.mark.parametrize("acks", [1, -1])
async def test_offsets_are_given_in_order(topic: WireTopic, acks: int) -> None:
    answers = [await topic.produce(client_batch(3), acks=acks) for _ in range(3)]
    assert [each.base_offset for each in answers] == [0, 3, 6]
    assert {each.error_code for each in answers} == {ErrorCode.none}
    assert answers[0].log_append_time is None


async def test_append_time_is_told_where_the_broker_sets_it(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire, message_timestamp_type="LogAppendTime")
        answer = await topic.produce(client_batch())
        assert answer.log_append_time is not None


async def test_no_answer_is_given_for_acks_0_and_the_next_request_gets_its_own(
    broker: BrokerNode, topic: WireTopic
) -> None:
    await topic.produce(client_batch(5), acks=0)
    assert (await topic.produce(client_batch(), acks=1)).base_offset == 5


async def test_a_refused_record_closes_the_connection_of_a_producer_that_wants_no_answer(
    topic: WireTopic,
) -> None:
    await topic.produce(b"x" * 100, acks=0)
    with pytest.raises(EOFError):
        await topic.wire.receive_bytes()


async def test_what_was_sent_before_the_client_left_is_taken(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire)
        for _ in range(200):
            await topic.produce(client_batch(), acks=0)
    await eventually(lambda: end_offset(broker) == 200)


async def test_a_repeated_batch_of_an_idempotent_producer_is_answered_as_the_first_was(
    broker: BrokerNode, topic: WireTopic
) -> None:
    batches = [client_batch(2, producer_id=7, epoch=0, sequence=sequence) for sequence in (0, 2, 4)]
    first = [(await topic.produce(batch)).base_offset for batch in batches]
    repeated = await topic.produce(batches[1])
    assert (repeated.error_code, repeated.base_offset) == (ErrorCode.none, 2)
    assert first == [0, 2, 4]
    assert end_offset(broker) == 6


async def test_a_repeated_batch_with_a_timestamp_beyond_the_calendar_is_answered_too(
    broker: BrokerNode,
) -> None:
    """A repeated batch is answered with its own time; a closed connection would have it repeated without end."""
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire, message_timestamp_after_max_ms=str(2**63 - 1))
        microseconds = 1_700_000_000_000_000
        batch = client_batch(timestamp_ms=microseconds, producer_id=7, epoch=0, sequence=0)
        for _ in range(2):
            answer = await topic.produce(batch)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)


async def test_a_gap_in_the_sequence_is_refused(topic: WireTopic) -> None:
    await topic.produce(client_batch(producer_id=7, epoch=0, sequence=0))
    gap = await topic.produce(client_batch(producer_id=7, epoch=0, sequence=5))
    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert gap.base_offset == -1


async def test_a_producer_with_an_older_epoch_is_fenced(topic: WireTopic) -> None:
    await topic.produce(client_batch(producer_id=7, epoch=3, sequence=0))
    old = await topic.produce(client_batch(producer_id=7, epoch=2, sequence=1))
    assert old.error_code is ErrorCode.invalid_producer_epoch


async def test_a_flipped_bit_is_found(broker: BrokerNode, topic: WireTopic) -> None:
    records = bytearray(client_batch(value=b"v" * 100))
    records[90] ^= 1
    answer = await topic.produce(bytes(records))
    assert answer.error_code is ErrorCode.corrupt_message
    assert end_offset(broker) == 0


async def test_a_request_that_cannot_be_served_says_why(topic: WireTopic) -> None:
    records = client_batch()
    codes = [
        (await topic.produce(records, acks=2)).error_code,
        (await topic.produce(records, partition=9)).error_code,
        (await topic.produce(None)).error_code,
        (await topic.produce(records, transactional_id="x")).error_code,
    ]
    topic.name = "none"
    codes.append((await topic.produce(records)).error_code)
    topic.topic_id = uuid.uuid4()
    codes.append((await topic.produce(records, version=13)).error_code)
    assert codes == [
        ErrorCode.invalid_required_acks,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_record,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    ]


async def test_records_of_a_transaction_that_nobody_could_end_are_refused(
    broker: BrokerNode, topic: WireTopic
) -> None:
    """They would hold back the last stable offset for ever: readers of committed records, and copying, stop at it."""
    records = client_batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    for version in (9, 13):
        refused = await topic.produce(records, version=version)
        assert refused.error_code is ErrorCode.invalid_producer_id_mapping
    assert (await topic.produce(client_batch())).base_offset == 0
    committed = await topic.fetch(0, isolation=1)
    assert (committed.last_stable_offset, len(committed.records)) == (1, len(client_batch()))


async def test_topics_are_produced_to_by_id(topic: WireTopic) -> None:
    assert (await topic.produce(client_batch(), version=13)).base_offset == 0


async def test_only_the_leader_takes_records(start_broker: StartBroker) -> None:
    one, two = await start_broker(1), await start_broker(2)
    async with KafkaWire(one.port("PLAINTEXT")) as wire:
        await eventually(lambda: len(one.view.live_brokers()) == 2)
        topic = await WireTopic.create(wire, replicas=(2,))
        refused = await topic.produce(client_batch())
        assert refused.error_code is ErrorCode.not_leader_or_follower
        async with KafkaWire(two.port("PLAINTEXT")) as leader:
            topic.wire = leader
            await eventually(lambda: two.services.partitions.get("t", 0) is not None)
            assert (await topic.produce(client_batch())).error_code is ErrorCode.none


async def test_too_few_replicas_refuse_acks_all_only(broker: BrokerNode) -> None:
    async with KafkaWire(broker.port("PLAINTEXT")) as wire:
        topic = await WireTopic.create(wire, min_insync_replicas="2")
        assert (await topic.produce(client_batch())).error_code is ErrorCode.not_enough_replicas
        assert (await topic.produce(client_batch(), acks=1)).error_code is ErrorCode.none


async def test_a_leader_epoch_that_rises_during_a_produce_makes_the_client_look_again(
    broker: BrokerNode, topic: WireTopic
) -> None:
    """librdkafka gives a message up that is answered with FENCED_LEADER_EPOCH; Kafka never answers a produce with it."""
    hosted = broker.services.partitions.get("t", 0)
    assert hosted is not None
    # As while this broker takes a higher epoch over: the log has it first.
    await hosted.log.assign_epoch_start(hosted.leader_epoch + 1, hosted.log.log_end_offset)
    refused = await topic.produce(client_batch())
    assert refused.error_code is ErrorCode.not_leader_or_follower
    assert refused.base_offset == -1
