"""Total retention: what expires is gone from both tiers, oldest first, and readers are told."""

import asyncio
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from fixtures.kafka_traffic import Puller, Record, assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.scrub import stored_objects
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import SMALL_SEGMENT_BYTES, MakeTopic, TieredTopic, TierOffsets

pytestmark = pytest.mark.xdist_group(E2E_GROUP)

HOUR_MS = 3_600_000


async def cold_log(suite: RunningSuite, topic: TieredTopic, *, old: int, new: int) -> list[Record]:
    """A cold log of records that are two hours old, then of fresh ones."""
    two_hours_ago = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    records = records_of(old, start_ms=two_hours_ago) + records_of(new, seed=1)
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records)
    await topic.until_cold()
    return acked


async def until_expired(topic: TieredTopic, *, least: int = 1) -> TierOffsets:
    """Wait until the log start was raised and no remote segment below it is left."""

    async def expired() -> TierOffsets:
        offsets = await topic.offsets()
        assert offsets.log_start >= least, offsets
        for segment in await topic.segments():
            assert segment.end_offset >= offsets.log_start
        return offsets

    return await eventually(expired, timeout_s=60, interval_s=0.1)


async def test_retention_by_time_removes_expired_segments_from_the_store(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Segments whose newest record is too old go, the others stay (SR-17)."""
    topic = await topics()
    acked = await cold_log(suite, topic, old=300, new=300)
    before = await topic.segments()
    await topic.alter(retention_ms=str(HOUR_MS))
    offsets = await until_expired(topic)
    now_ms = time.time_ns() // 1_000_000
    expired = [each for each in before if each.max_timestamp_ms < now_ms - HOUR_MS]
    assert offsets.log_start == expired[-1].end_offset + 1
    assert 200 < offsets.log_start <= 300
    consumed = await asyncio.to_thread(
        consume, suite.bootstrap, topic.name, offsets.end, start=offsets.log_start
    )
    assert_same(consumed, acked[offsets.log_start :])


async def test_retention_by_size_counts_both_tiers(suite: RunningSuite, topics: MakeTopic) -> None:
    """The oldest go until what is left is no larger than `retention.bytes` (SR-11, SR-17)."""
    topic = await topics()
    await cold_log(suite, topic, old=0, new=600)
    limit = 5 * SMALL_SEGMENT_BYTES
    await topic.alter(retention_bytes=str(limit))
    await until_expired(topic)
    await topic.until_settled()
    remote = sum(each.segment_size_bytes for each in await topic.segments())
    # Nothing goes that the limit does not demand: one segment more would have been within it.
    assert limit <= remote + topic.local_bytes() + SMALL_SEGMENT_BYTES
    assert remote + topic.local_bytes() - SMALL_SEGMENT_BYTES < limit


@pytest.mark.parametrize(
    "configs",
    [
        {"remote_log_retention_minutes": "60"},
        {"remote_log_retention_bytes": "1"},
        {"remote_log_retention_minutes": "60", "remote_log_retention_bytes": str(2**40)},
        {"remote_log_retention_minutes": str(2**31 - 1), "remote_log_retention_bytes": "1"},
    ],
    ids=["time", "size", "time though not size", "size though not time"],
)
async def test_remote_retention_overrides_the_total_one_and_either_breach_is_enough(
    suite: RunningSuite, topics: MakeTopic, configs: dict[str, str]
) -> None:
    """The topic's own unlimited `retention.*` notwithstanding (SR-10, SR-11)."""
    topic = await topics()
    await cold_log(suite, topic, old=300, new=0)
    await topic.alter(**configs)
    offsets = await until_expired(topic)
    assert offsets.log_start == offsets.local_start
    await eventually(lambda: not stored_objects(suite, topic.tip()), timeout_s=60)


async def test_a_reader_of_what_expired_is_told_and_goes_on_at_the_log_start(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """OFFSET_OUT_OF_RANGE, not an empty answer and not an error that is retried for ever."""
    topic = await topics()
    acked = await cold_log(suite, topic, old=300, new=300)
    await topic.alter(retention_ms=str(HOUR_MS))
    offsets = await until_expired(topic)
    with Puller(suite.bootstrap, topic.name) as puller, pytest.raises(KafkaException) as caught:
        await asyncio.to_thread(puller.pull, offsets.end)
    assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    with Puller(suite.bootstrap, topic.name, auto_offset_reset="earliest") as puller:
        consumed = await asyncio.to_thread(puller.pull, offsets.end)
    assert_same(consumed, acked[offsets.log_start :])


async def test_expiry_of_everything_leaves_an_empty_log_that_goes_on(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Offsets are never used again."""
    topic = await topics()
    acked = await cold_log(suite, topic, old=300, new=0)
    await topic.alter(retention_ms=str(HOUR_MS), local_retention_ms=str(HOUR_MS))
    await until_expired(topic, least=len(acked))
    offsets = await topic.offsets()
    assert (offsets.log_start, offsets.end) == (len(acked), len(acked))
    more = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(5, seed=2))
    assert [record.offset for record in more] == list(range(len(acked), len(acked) + 5))
    consumed = await asyncio.to_thread(
        consume, suite.bootstrap, topic.name, len(acked) + 5, start=len(acked)
    )
    assert_same(consumed, more)
