"""The only disk of a partition is lost: the log goes on behind what is remote, and nothing remote is lost or hidden."""

import asyncio
import shutil
from collections.abc import Sequence
from typing import Final

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from fixtures.kafka_traffic import Record, assert_same, consume, produce, records_of
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic, TieredTopic
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)

WAITING_S: Final = 120.0


async def push(topic: TieredTopic, count: int, seed: int) -> list[Record]:
    """Produce with an idempotent producer, which waits for the leader as long as it takes."""
    return await asyncio.to_thread(
        produce,
        topic.suite.bootstrap,
        topic.name,
        records_of(count, seed=seed),
        enable_idempotence=True,
    )


async def check(topic: TieredTopic, expected: Sequence[Record]) -> None:
    """Assert that a consumer gets exactly these from the first offset on."""
    consumed = await asyncio.to_thread(
        consume, topic.suite.bootstrap, topic.name, len(expected), start=expected[0].offset
    )
    assert_same(consumed, list(expected))


async def test_a_leader_with_an_empty_disk_goes_on_behind_the_last_remote_record(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """Killed, its whole log dir gone: consumers get all remote records, then the new ones (K-3.11)."""
    topic = await chaos_topics()
    acked = await push(topic, 300, seed=0)
    before = await topic.until_cold()
    stored = {each.segment_id for each in await topic.segments()}
    async with chaos_suite.down("broker-1"):
        shutil.rmtree(topic.folder().parent)

    more = await push(topic, 300, seed=1)

    kept = acked[: before.tiered + 1]
    assert [record.offset for record in more] == list(range(before.tiered + 1, before.tiered + 301))
    await check(topic, kept + more)
    await topic.until_cold()
    await topic.until_ran(pb.TASK_TYPE_EXPIRATION, times=3)
    await check(topic, kept + more)
    assert stored <= {each.segment_id for each in await topic.segments()}
    assert (await topic.offsets()).log_start == 0


async def test_a_leader_with_an_empty_disk_waits_for_remote_storage(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """Until it can be asked clients are told to come back, and topics whose logs are intact are served."""
    lost, intact = await chaos_topics(), await chaos_topics()
    acked = await push(lost, 300, seed=0)
    before = await lost.until_cold()
    await push(intact, 10, seed=1)
    async with chaos_suite.down("storage"):
        async with chaos_suite.down("broker-1"):
            shutil.rmtree(lost.folder())
        assert (await lost.fetch(0))[0] is ErrorCode.not_leader_or_follower
        with pytest.raises(AssertionError, match="not_leader_or_follower"):
            await lost.offsets()
        assert [each.offset for each in await push(intact, 10, seed=2)] == list(range(10, 20))
        assert (await lost.fetch(before.end))[0] is ErrorCode.not_leader_or_follower

    more = await asyncio.wait_for(push(lost, 100, seed=3), WAITING_S)

    assert more[0].offset == before.tiered + 1
    await check(lost, acked[: before.tiered + 1] + more)
