"""Consumer groups with stock clients: assignment, resuming, moving, and the metadata service going away."""

import asyncio

import aiokafka
import confluent_kafka
import pytest
from aiokafka.structs import TopicPartition
from aquifer_broker.app import BrokerNode
from aquifer_broker.coordination.placement import coordinator_of
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka.admin import AdminClient
from fixtures.broker_node import StartBroker, bootstrap
from fixtures.cluster_metadata import InMemoryClusterMetadata
from fixtures.kafka_clients import consume, create_topic, in_thread, poll_messages, produce
from fixtures.polling import eventually

VALUES = [str(number).encode() for number in range(100)]


async def filled(node: BrokerNode, topic: str = "t", partitions: int = 1) -> str:
    """Create a topic with `VALUES` and return the broker's address."""
    address = bootstrap(node)
    await in_thread(create_topic, address, topic, partitions)
    await in_thread(produce, address, topic, VALUES)
    return address


async def test_a_group_goes_on_where_it_stopped_also_after_a_restart_of_the_broker(
    start_broker: StartBroker, cluster_metadata: InMemoryClusterMetadata
) -> None:
    async with await start_broker(1, stop=True) as node:
        address = await filled(node)
        first = await in_thread(consume, address, "t", 40)
        assert [each.value() for each in first] == VALUES[:40]
    async with await start_broker(1, stop=True) as node:
        rest = await in_thread(consume, bootstrap(node), "t", 60)
        assert [each.value() for each in rest] == VALUES[40:]
        partition = node.view.topics["t"].partitions[0]
        assert (partition.leader, partition.leader_epoch) == (1, 2)


async def test_two_members_share_the_partitions_and_one_takes_over_what_the_other_leaves(
    broker: BrokerNode,
) -> None:
    address = await filled(broker, partitions=4)

    def member() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=address, group_id="g", heartbeat_interval_ms=100
        )

    everything = {TopicPartition("t", number) for number in range(4)}
    async with member() as one:
        await eventually(lambda: one.assignment() == everything)
        async with member() as two:
            await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2)
            assert one.assignment() | two.assignment() == everything
        await eventually(lambda: one.assignment() == everything)


async def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance(
    broker: BrokerNode,
) -> None:
    address = await filled(broker)

    def visit() -> tuple[list[int], int]:
        messages = consume(address, "t", 10, group_instance_id="one", session_timeout_ms=30_000)
        group = broker.groups.get("consumers")
        assert group is not None
        return [each.offset() for each in messages], group.generation_id

    first, generation = await in_thread(visit)
    second, generation_after = await in_thread(visit)
    assert second == [offset + 10 for offset in first]
    assert generation == generation_after == 1


async def test_groups_are_listed_described_and_deleted_when_empty(broker: BrokerNode) -> None:
    address = await filled(broker)

    def administer() -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        poll_messages(consumer, 5)
        consumer.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": address})
        described = admin.describe_consumer_groups(["g"])["g"].result(60)
        assert described.state == confluent_kafka.ConsumerGroupState.STABLE
        (member,) = described.members
        assert [each.topic for each in member.assignment.topic_partitions] == ["t"]
        with pytest.raises(confluent_kafka.KafkaException) as not_empty:
            admin.delete_consumer_groups(["g"])["g"].result(60)
        assert not_empty.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        consumer.close()
        listed = admin.list_consumer_groups().result(60)
        assert [each.group_id for each in listed.valid] == ["g"]
        assert not listed.errors
        asked = [ConsumerGroupTopicPartitions("g")]
        offsets = admin.list_consumer_group_offsets(asked)["g"].result(60)
        assert [each.offset for each in offsets.topic_partitions] == [5]
        admin.delete_consumer_groups(["g"])["g"].result(60)
        assert admin.list_consumer_groups().result(60).valid == []

    await in_thread(administer)


async def test_a_consumer_that_assigns_itself_commits_without_being_a_member(
    broker: BrokerNode,
) -> None:
    address = await filled(broker)
    partition = TopicPartition("t", 0)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, group_id="alone")
    async with consumer:
        consumer.assign([partition])
        await consumer.commit({partition: 7})
    assert await committed(address, "alone") == 7


async def committed(address: str, group: str) -> int | None:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, group_id=group)
    async with consumer:
        offset: int | None = await consumer.committed(TopicPartition("t", 0))
        return offset


async def test_committing_waits_out_an_outage_of_the_metadata_service_and_reading_goes_on(
    broker: BrokerNode, cluster_metadata: InMemoryClusterMetadata
) -> None:
    """SR-36: brokers serve produce and local fetch while services are down."""
    address = await filled(broker)
    consumer = aiokafka.AIOKafkaConsumer(
        "t",
        bootstrap_servers=address,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        async with asyncio.timeout(60):
            await consumer.getone()
            await cluster_metadata.go_away()
            assert (await in_thread(produce, address, "t", [b"more"])) == [100]
            for _ in range(100):
                last = await consumer.getone()
            assert last.value == b"more"
            committing = asyncio.create_task(consumer.commit())
            await eventually(lambda: cluster_metadata.refused_calls >= 2)
            assert not committing.done()
            cluster_metadata.available = True
            await committing
    assert await committed(address, "g") == 101


async def test_groups_are_spread_over_brokers_and_move_when_their_coordinator_goes(
    start_broker: StartBroker, cluster_metadata: InMemoryClusterMetadata
) -> None:
    one = await start_broker(1)
    async with await start_broker(2, stop=True) as two:
        await eventually(lambda: len(one.view.live_brokers()) == len(two.view.live_brokers()) == 2)
        address = await filled(one)
        group = next(name for name in "abcdefgh" if coordinator_of(name, [1, 2]) == 2)
        await in_thread(lambda: consume(address, "t", 30, group=group))
        assert two.groups.get(group) is not None
        assert one.groups.get(group) is None
    rest = await in_thread(lambda: consume(address, "t", 70, group=group))
    assert [each.value() for each in rest] == VALUES[30:]
    assert one.groups.get(group) is not None
