"""Apache Kafka with the plugin: what readers see of transactions in remote storage (TransactionsWithTieredStoreTest, K-7.1, K-3.8)."""

import asyncio
import time

import pytest
from fixtures.kafka_cluster import KAFKA_GROUP, SETTLE_S, KafkaTopic, MakeKafkaTopic
from fixtures.kafka_java_clients import JavaClients, JavaConsumer, group_alone
from fixtures.kafka_java_process import JavaError
from fixtures.kafka_reads import remote_reads
from fixtures.kafka_traffic import Record
from fixtures.kafka_transactions import Seen, seen_from_remote, until_remote
from fixtures.polling import eventually

pytestmark = [pytest.mark.xdist_group(KAFKA_GROUP), pytest.mark.timeout(900)]


async def test_committed_records_are_seen_and_aborted_ones_only_by_those_who_ask(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """Transactions over two topics; the one that is open goes nowhere (SR-38)."""
    topics = [await kafka_topics(), await kafka_topics(assignment=((2,),))]
    producer = await java_clients.producer(topics[0].name)
    await producer.init()
    await producer.begin()
    for topic in topics:
        assert await producer.send(topic.name, "aborted") == [0]
    await producer.abort()
    for topic in topics:
        await until_remote(topic, end=2)
    await producer.begin()
    for topic in topics:
        assert await producer.send(topic.name, "committed") == [2]
        # The abort's marker can be copied, the record of the open transaction cannot.
        await topic.until_offsets(local_start=2, tiered=1, end=3)
    await producer.commit()
    for topic in topics:
        seen = await seen_from_remote(java_clients, topic, end=4)
        assert seen == Seen(committed=["committed"], everything=["aborted", "committed"])


async def test_undecided_records_are_neither_copied_nor_seen(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """Readers of committed records end at the last stable offset, remote data or not, and so do searches by time (SR-16, SR-26)."""
    topic = await kafka_topics()
    decided = await java_clients.producer(f"{topic.name}-decided")
    undecided = await java_clients.producer(f"{topic.name}-undecided")
    early = time.time_ns() // 1_000_000
    for producer in (decided, undecided):
        await producer.init()
        await producer.begin()
    assert await decided.send(topic.name, "1", timestamp=early) == [0]
    assert await undecided.send(topic.name, "2", "3", timestamp=early + 1) == [1, 2]
    assert await decided.send(topic.name, "4", timestamp=early + 1) == [3]
    await decided.commit()
    await topic.until_offsets(local_start=1, tiered=0, end=5)
    committed = await java_clients.consumer(topic.name, "read_committed")
    everything = await java_clients.consumer(topic.name, "read_uncommitted")
    for consumer in (committed, everything):
        await consumer.assign()
    async with remote_reads(topic) as reads:
        assert await committed.read(until=1) == [(0, "1")]
        assert await committed.poll() == []
        assert await everything.read(until=5) == [(0, "1"), (1, "2"), (2, "3"), (3, "4")]
        await reads.were({1: [0]})
    assert (await committed.end(), await everything.end()) == (1, 5)
    assert await committed.at_time(early) == 0
    assert await committed.at_time(early + 1) is None
    assert await everything.at_time(early + 1) == 1
    assert (await topic.offsets()).tiered == 0
    await undecided.commit()
    seen = await seen_from_remote(java_clients, topic, end=6)
    assert seen.committed == seen.everything == ["1", "2", "3", "4"]
    assert await committed.read(until=6) == [(1, "2"), (2, "3"), (3, "4")]


async def test_a_fetch_that_waits_knows_of_the_abort_that_ended_its_wait(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """Once while the records are local, once when they are remote."""
    topic = await kafka_topics()
    waiting = {"fetch_min_bytes": 100_000, "fetch_max_wait_ms": 1000}
    kept = await java_clients.producer(f"{topic.name}-kept")
    aborted = await java_clients.producer(f"{topic.name}-aborted")
    for producer in (kept, aborted):
        await producer.init()
        await producer.begin()
    consumer = await java_clients.consumer(topic.name, "read_committed", **waiting)
    await consumer.assign()
    async with asyncio.TaskGroup() as group:
        early = group.create_task(consumer.read(until=6))
        assert await kept.send(topic.name, "1") == [0]
        assert await aborted.send(topic.name, "2", "3") == [1, 2]
        assert await kept.send(topic.name, "4") == [3]
        await aborted.abort()
        await kept.commit()
    assert early.result() == [(0, "1"), (3, "4")]
    await until_remote(topic, end=6)
    await consumer.assign()
    async with remote_reads(topic) as reads:
        assert await consumer.read(until=6) == [(0, "1"), (3, "4")]
        await reads.were({1: range(5)})


async def test_markers_reach_every_partition_of_one_leader(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    topic = await kafka_topics(assignment=((1,),) * 8)
    producer = await java_clients.producer(topic.name)
    await producer.init()
    for value in ("aborted", "committed"):
        await producer.begin()
        for partition in range(topic.partitions):
            await producer.send(topic.name, f"{value} {partition}", partition=partition)
        await (producer.commit() if value == "committed" else producer.abort())
    found = await asyncio.gather(
        *(seen_from_remote(java_clients, topic, 4, each) for each in range(topic.partitions))
    )
    for partition, seen in enumerate(found):
        committed = f"committed {partition}"
        expected = Seen(committed=[committed], everything=[f"aborted {partition}", committed])
        assert seen == expected


async def test_a_producer_begins_once_and_may_abort_a_transaction_without_records(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    topic = await kafka_topics()
    producer = await java_clients.producer(topic.name)
    await producer.init()
    with pytest.raises(JavaError) as refused:
        await producer.init()
    assert refused.value.names == ["IllegalStateException"]
    for value in ("1", "2"):
        await producer.begin()
        await producer.send(topic.name, value)
        await producer.commit()
        await producer.begin()
        await producer.abort()
    seen = await seen_from_remote(java_clients, topic, end=4)
    assert seen.committed == seen.everything == ["1", "2"]


async def until_member(consumer: JavaConsumer) -> None:
    """Poll until the consumer is a member of its group."""

    async def joined() -> bool:
        await consumer.poll()
        return bool((await consumer.group())["member"])

    await eventually(joined, timeout_s=SETTLE_S)


async def copied(
    clients: JavaClients,
    source: KafkaTopic,
    target: KafkaTopic,
    partition: int,
    *,
    protocol: str,
    member: bool,
) -> int:
    """Copy all in transactions with the group's offsets, every second one of which is aborted; where the target ends."""
    group_id = f"{target.name}-{partition}"
    producer = await clients.producer(group_id)
    await producer.init()
    config = {"group_id": group_id, "group_protocol": protocol}
    consumer = await clients.consumer(source.name, "read_committed", **config)
    await consumer.subscribe()
    source_end = (await source.offsets()).end
    end, done, commit = 0, 0, False
    async with asyncio.timeout(2 * SETTLE_S):
        while done < source_end:
            records = await consumer.poll()
            if not records:
                continue
            commit = not commit
            group = await consumer.group() if member else group_alone(group_id)
            await producer.begin()
            await producer.send(target.name, *(value for _, value in records), partition=partition)
            await producer.send_offsets(source.name, records[-1][0] + 1, group)
            end += len(records) + 1
            if commit:
                await producer.commit()
                done = records[-1][0] + 1
            else:
                await producer.abort()
                await consumer.rewind()
    return end


async def test_records_are_copied_exactly_once_from_one_topic_to_another(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """sendOffsetsToTransaction, committed and aborted, by a member of either kind of group and by who names the group only."""
    source = await kafka_topics(batches=2)
    target = await kafka_topics(assignment=((1,), (2,), (1,)))
    values = [str(number) for number in range(7)]
    await source.produce([Record(key=b"key", value=value.encode()) for value in values])
    assert (await source.until_cold()).local_start == 6
    kinds = [("classic", True), ("consumer", True), ("classic", False)]
    for partition, (protocol, member) in enumerate(kinds):
        async with remote_reads(source) as reads:
            end = await copied(
                java_clients, source, target, partition, protocol=protocol, member=member
            )
            await reads.were({1: [0, 2, 4]})
        seen = await seen_from_remote(java_clients, target, end, partition)
        assert seen.committed == values
        assert len(seen.everything) > len(values)


async def test_offsets_of_who_is_no_member_any_more_are_refused(
    kafka_topics: MakeKafkaTopic, java_clients: JavaClients
) -> None:
    """Another generation, another member, a static member that was replaced; then offset and metadata as they were sent."""
    topic = await kafka_topics()
    producer = await java_clients.producer(topic.name)
    await producer.init()
    config = {"group_id": topic.name, "group_instance_id": "instance"}
    replaced = await java_clients.consumer(topic.name, "read_committed", **config)
    await replaced.subscribe()
    await until_member(replaced)
    old = await replaced.group()
    present = await java_clients.consumer(topic.name, "read_committed", **config)
    await present.subscribe()
    await until_member(present)
    new = await present.group()
    anonymous = {**new, "instance": None}
    for group, error in (
        (old, "FencedInstanceIdException"),
        ({**anonymous, "generation": new["generation"] + 1}, "CommitFailedException"),
        ({**anonymous, "member": "nobody"}, "CommitFailedException"),
    ):
        await producer.begin()
        await producer.send(topic.name, error)
        with pytest.raises(JavaError) as refused:
            await producer.send_offsets(topic.name, 1, group)
        assert error in refused.value.names
        await producer.abort()
    await producer.begin()
    await producer.send(topic.name, "committed")
    await producer.send_offsets(topic.name, 7, new, metadata="some metadata", epoch=0)
    await producer.commit()
    assert await present.committed() == (7, 0, "some metadata")
    seen = await seen_from_remote(java_clients, topic, end=8)
    assert seen.committed == ["committed"]
    assert len(seen.everything) == 4
