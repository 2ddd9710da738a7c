"""Consumer groups over a log in two tiers."""

import asyncio
import time

import pytest
from confluent_kafka import Consumer, KafkaException
from fixtures.kafka_traffic import Record, produce, records_of
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

Seen = list[tuple[int, int]]


class Member:
    """A member of a group that commits what it was given, after it was given it."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.seen: Seen = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def consume(self, count: int, timeout_s: float = 60.0) -> Seen:
        """Consume at least that many more, and commit them."""
        deadline = time.monotonic() + timeout_s
        wanted = len(self.seen) + count
        while len(self.seen) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.seen)} of {wanted} records")
            self.consume_some()
        return self.seen

    def consume_some(self) -> None:
        """Consume what comes within a moment, and commit it."""
        messages = self._consumer.consume(50, timeout=0.5)
        for message in messages:
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.seen.append((partition, offset))
        if messages:
            self._commit()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


async def fill(suite: RunningSuite, topic_name: str, partitions: int, count: int) -> None:
    """Produce to every partition."""
    for partition in range(partitions):
        records: list[Record] = records_of(count, seed=partition)
        await asyncio.to_thread(produce, suite.bootstrap, topic_name, records, partition=partition)


@pytest.mark.parametrize("restarted", ["client", "brokers", "metadata"])
async def test_a_group_goes_on_in_the_cold_part_where_it_had_committed(
    suite: RunningSuite, topics: MakeTopic, restarted: str
) -> None:
    """Across a restart of the client, of every broker, of the metadata service (SR-38)."""
    topic = await topics()
    await fill(suite, topic.name, 1, 400)
    await topic.until_cold()
    first = Member(suite.bootstrap, topic.name, topic.name)
    try:
        before = list(await asyncio.to_thread(first.consume, 150))
    finally:
        await asyncio.to_thread(first.close)
    if restarted == "brokers":
        await suite.restart("broker-1")
        await suite.restart("broker-2")
    elif restarted == "metadata":
        await suite.restart("metadata")
    second = Member(suite.bootstrap, topic.name, topic.name)
    try:
        after = await asyncio.to_thread(second.consume, 400 - len(before))
    finally:
        await asyncio.to_thread(second.close)
    assert [offset for _, offset in before + after] == list(range(400))


async def test_a_group_shares_partitions_and_takes_over_from_a_member_that_leaves(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Each record reaches the group at least once; committed ones only once."""
    topic = await topics(4)
    await fill(suite, topic.name, 4, 200)
    for partition in range(4):
        await topic.until_cold(partition)
    left = Member(suite.bootstrap, topic.name, topic.name)
    right = Member(suite.bootstrap, topic.name, topic.name)
    try:
        deadline = time.monotonic() + 120
        while len({partition for partition, _ in left.seen}) == 0 or not right.seen:
            assert time.monotonic() < deadline, "both members get partitions"
            await asyncio.gather(
                asyncio.to_thread(left.consume_some), asyncio.to_thread(right.consume_some)
            )
        await asyncio.to_thread(left.close)
        while len({*left.seen, *right.seen}) < 800:
            assert time.monotonic() < deadline, "the member that is left gets everything"
            await asyncio.to_thread(right.consume_some)
    finally:
        await asyncio.to_thread(right.close)
    assert {*left.seen, *right.seen} == {(p, offset) for p in range(4) for offset in range(200)}
