"""Something below the brokers does not answer: the hot part goes on, the cold part waits, and all is made up for."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from fixtures.kafka_traffic import Puller, Pusher, Record, assert_same, consume, produce, records_of
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic, TieredTopic
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)

FAILURES: Final = "__remote_segments_to_be_deleted"
HOT_S: Final = 15.0
"""Longest time of a hot operation during an outage. It takes milliseconds; what waits for an outage takes 20 s and more."""
COLD_WAIT_S: Final = 15.0
"""Longest time to an answer of a cold fetch: its wait is half a second."""
TOLD_S: Final = 40.0
"""By then a reader of the cold part is told that the store does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What does not answer, and how: `down` refuses connections, `paused` accepts them and says nothing."""

    process: str
    paused: bool = False
    topics_can_be_created: bool = True
    told: bool = False
    cold_goes_on: bool = False

    def __str__(self) -> str:
        return f"{self.process} {'paused' if self.paused else 'down'}"

    @asynccontextmanager
    async def begin(self, suite: RunningSuite) -> AsyncIterator[None]:
        """Until the end of the block."""
        if self.paused:
            with suite.paused(self.process):
                yield
        else:
            async with suite.down(self.process):
                yield
        await suite.wait_ready(self.process)


OUTAGES = (
    Outage(process="s3"),
    Outage(process="s3", paused=True, told=True),
    Outage(process="storage"),
    Outage(process="manager", told=True),
    Outage(process="manager", paused=True),
    Outage(process="metadata", topics_can_be_created=False, cold_goes_on=True),
    Outage(process="metadata", paused=True, topics_can_be_created=False, cold_goes_on=True),
    Outage(process="postgres", topics_can_be_created=False, cold_goes_on=True),
)


def produce_one_by_one(bootstrap: str, topic: str, count: int) -> tuple[list[Record], float]:
    """Produce with acks=all, each record after the one before was acknowledged; (acknowledged, longest time)."""
    slowest_s = 0.0
    with Pusher(bootstrap, topic, acks="all", linger_ms=0) as pusher:
        for record in records_of(count, seed=99):
            begun = time.monotonic()
            pusher.push(record)
            pusher.flush(HOT_S * 4)
            slowest_s = max(slowest_s, time.monotonic() - begun)
        return list(pusher.acked), slowest_s


async def cold_answers(topic: TieredTopic, until_s: float, *, told: bool) -> set[ErrorCode]:
    """Fetch offset 0 again and again; the errors answered. With `told` until KAFKA_STORAGE_ERROR is among them."""
    errors: set[ErrorCode] = set()
    deadline = time.monotonic() + until_s
    while time.monotonic() < deadline:
        begun = time.monotonic()
        error, size_bytes = await topic.fetch(0)
        assert time.monotonic() - begun < COLD_WAIT_S
        assert size_bytes == 0, "nothing was read before, so nothing can be in a cache"
        errors.add(error)
        if told and ErrorCode.kafka_storage_error in errors:
            break
    return errors


@pytest.mark.parametrize("outage", OUTAGES, ids=str)
@pytest.mark.timeout(420)
async def test_hot_goes_on_cold_is_told_and_all_is_made_up_for(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, outage: Outage
) -> None:
    """Produce, local reads and topic creation do not notice; copying resumes by itself (SR-19, SR-36).

    While only metadata is down, cold reads go on by the manager's local remote index (SR-33).
    """
    topic = await chaos_topics()
    acked = await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(300))
    before = await topic.until_cold()
    await topic.until_indexed(before.local_start - 1)
    with Puller(chaos_suite.bootstrap, topic.name) as patient:
        async with outage.begin(chaos_suite):
            more, slowest_s = await asyncio.to_thread(
                produce_one_by_one, chaos_suite.bootstrap, topic.name, 150
            )
            assert slowest_s < HOT_S
            acked += more
            begun = time.monotonic()
            hot = await asyncio.to_thread(
                consume, chaos_suite.bootstrap, topic.name, len(acked), start=before.local_start
            )
            assert_same(hot, acked[before.local_start :])
            if outage.topics_can_be_created:
                other = await chaos_topics()
                await asyncio.to_thread(produce, chaos_suite.bootstrap, other.name, records_of(10))
            assert time.monotonic() - begun < 2 * HOT_S
            if outage.cold_goes_on:
                cold = await asyncio.to_thread(
                    consume, chaos_suite.bootstrap, topic.name, before.local_start
                )
                assert_same(cold[: before.local_start], acked[: before.local_start])
                wanted = acked[before.local_start // 2].timestamp_ms
                first = next(each.offset for each in acked if each.timestamp_ms >= wanted)
                assert (await topic.list_offset(wanted))[1] == first
            else:
                errors = await cold_answers(topic, TOLD_S if outage.told else 2.0, told=outage.told)
                assert errors <= {ErrorCode.none, ErrorCode.kafka_storage_error}
                assert not outage.told or ErrorCode.kafka_storage_error in errors
        assert_same(await asyncio.to_thread(patient.pull, len(acked)), acked)
    after = await topic.until_cold()
    assert after.tiered > before.tiered
    assert after.log_start == 0


async def test_deletions_asked_for_while_the_store_is_down_are_done_when_it_is_back(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """DeleteRecords and DeleteTopics do not wait for the store; what fails is published (SR-25, SR-35, SR-36)."""
    cut, doomed = await chaos_topics(), await chaos_topics()
    for topic in (cut, doomed):
        await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(300))
        await topic.until_cold()
    segments = {str(each.segment_id.id) for each in await cut.segments() + await doomed.segments()}
    admin = AdminClient({"bootstrap.servers": chaos_suite.bootstrap, "log_level": 0})
    async with chaos_suite.down("s3"):
        begun = time.monotonic()
        (future,) = admin.delete_records([TopicPartition(cut.name, 0, -1)]).values()
        deleted = await asyncio.wait_for(asyncio.wrap_future(future), 60)
        assert deleted.low_watermark == 300
        await doomed.delete()
        assert time.monotonic() - begun < HOT_S
        assert (await cut.offsets()).log_start == 300
        with Failures(chaos_suite.bootstrap) as failures:
            await asyncio.to_thread(failures.read_until, lambda latest: segments & latest.keys())
    await chaos_suite.wait_ready("s3")
    await doomed.until_gone()
    await cut.until_settled()
    assert not await cut.segments()
    with Failures(chaos_suite.bootstrap) as failures:
        await asyncio.to_thread(
            failures.read_until,
            lambda latest: all(latest.get(each) is None for each in segments & latest.keys()),
        )


class Failures:
    """Reads the topic of failed deletions from its beginning."""

    def __init__(self, bootstrap: str) -> None:
        self._latest: dict[str, bytes | None] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "failures",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(FAILURES, 0, 0)])

    def __enter__(self) -> "Failures":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read_until(self, wanted: Callable[[dict[str, bytes | None]], object]) -> None:
        """Read until `wanted` is true of the newest value of each segment."""
        deadline = time.monotonic() + 120
        while not (self._latest and wanted(self._latest)):
            assert time.monotonic() < deadline, self._latest
            for message in self._consumer.consume(100, timeout=0.5):
                if message.error() is None:
                    self._latest[(message.key() or b"").decode()] = message.value()
