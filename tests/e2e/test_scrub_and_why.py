"""What an operator does when segments are lost, and asks when they are not where one expects them."""

import asyncio

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_rpc import convert
from aquifer_standalone.stack import BUCKET
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.scrub import stored_objects
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def scrub(suite: RunningSuite, tip: TopicIdPartition, *, heal: bool) -> list[pb.TaskAction]:
    request = pb.RunTaskRequest(
        topic_id_partition=convert.tip_to_pb(tip), type=pb.TASK_TYPE_SCRUB, heal=heal
    )
    async with suite.manager_stub() as manager:
        return list((await manager.RunTask(request, timeout=120)).actions)


async def why(
    suite: RunningSuite, tip: TopicIdPartition, offset: int
) -> dict["pb.WhyQuestion.ValueType", str]:
    request = pb.ExplainRequest(topic_id_partition=convert.tip_to_pb(tip), offset=offset)
    async with suite.manager_stub() as manager:
        answer = await manager.Explain(request, timeout=120)
    return {
        each.question: pb.WhyReason.Name(each.reason).removeprefix("WHY_REASON_")
        for each in answer.explanations
    }


def lose(suite: RunningSuite, segment: RemoteLogSegmentMetadata) -> None:
    """Somebody deletes a segment's objects behind everybody's back."""
    client = suite.stack.s3.target.client(timeout_s=60)
    for key in stored_objects(suite, segment.topic_id_partition):
        if str(segment.segment_id.id) in key:
            client.remove_object(BUCKET, key)


async def test_a_segment_lost_in_the_store_comes_back_from_its_broker(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """As long as local retention keeps it; what becomes cold afterwards is whole."""
    topic = await topics(local_retention_bytes=str(1 << 30))
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    await topic.until_copied()
    assert await scrub(suite, topic.tip(), heal=False) == []

    lost = (await topic.segments())[1]
    await asyncio.to_thread(lose, suite, lost)
    [found] = await scrub(suite, topic.tip(), heal=False)
    assert (found.action, found.remedy, found.healed) == ("missing", "copy_again", False)
    [healed] = await scrub(suite, topic.tip(), heal=True)
    assert (healed.action, healed.healed) == ("missing", True)
    assert await scrub(suite, topic.tip(), heal=True) == []

    await topic.alter(local_retention_bytes="1")
    offsets = await topic.until_cold()
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end), acked)


async def test_why_says_where_a_record_is_and_what_keeps_it_there(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    offsets = await topic.until_cold()
    assert await why(suite, topic.tip(), 0) == {
        pb.WHY_QUESTION_NOT_DELETED: "RETENTION_UNLIMITED",
        pb.WHY_QUESTION_UNREADABLE: "READABLE",
    }
    assert await why(suite, topic.tip(), offsets.end - 1) == {
        pb.WHY_QUESTION_STILL_LOCAL: "ACTIVE_SEGMENT",
        pb.WHY_QUESTION_UNREADABLE: "READ_LOCALLY",
    }
