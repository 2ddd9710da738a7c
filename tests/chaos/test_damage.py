"""Stored bytes that are damaged or gone are found and never served."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_rpc import convert
from aquifer_standalone.stack import BUCKET
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.scrub import stored_objects
from fixtures.suite import CHAOS_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic, TieredTopic
from kio.schema.errors import ErrorCode

pytestmark = pytest.mark.xdist_group(CHAOS_GROUP)


async def actions(suite: RunningSuite, topic: TieredTopic) -> list[tuple[int, str]]:
    """What a scrub of the partition finds: (start offset, finding)."""
    request = pb.RunTaskRequest(
        topic_id_partition=convert.tip_to_pb(topic.tip()), type=pb.TASK_TYPE_SCRUB
    )
    async with suite.manager_stub() as manager:
        answer = await manager.RunTask(request, timeout=120)
    return [(each.segment.start_offset, each.action) for each in answer.actions]


def object_of(suite: RunningSuite, segment: RemoteLogSegmentMetadata, suffix: str) -> str:
    """Key of one of its objects."""
    (key,) = (key for key in objects_of(suite, segment) if key.endswith(suffix))
    return key


def objects_of(suite: RunningSuite, segment: RemoteLogSegmentMetadata) -> list[str]:
    """Keys of its objects, the manifest last."""
    keys = stored_objects(suite, segment.topic_id_partition)
    found = [key for key in keys if str(segment.segment_id.id) in key]
    return sorted(found, key=lambda key: key.endswith(".manifest"))


@asynccontextmanager
async def replaced(suite: RunningSuite, key: str, damage: str) -> AsyncIterator[None]:
    """Damage an object for the time of the block."""
    client = suite.stack.s3.target.client(timeout_s=60)
    answer = client.get_object(BUCKET, key)
    sound = answer.read()
    answer.close()
    if damage == "gone":
        client.remove_object(BUCKET, key)
    else:
        changed = bytearray(sound)
        changed[len(changed) // 2] ^= 0x40
        kept = changed if damage == "changed" else changed[: len(changed) // 2]
        client.put_object(BUCKET, key, io.BytesIO(bytes(kept)), len(kept))
    try:
        yield
    finally:
        client.put_object(BUCKET, key, io.BytesIO(sound), len(sound))


@asynccontextmanager
async def without_manifest(
    suite: RunningSuite, segment: RemoteLogSegmentMetadata
) -> AsyncIterator[None]:
    """Remove the manifest for the time of the block.

    Where the block takes long the rest is swept meanwhile, as garbage of a copy: all of it comes back.
    """
    client = suite.stack.s3.target.client(timeout_s=60)
    sound = {}
    for key in objects_of(suite, segment):
        answer = client.get_object(BUCKET, key)
        sound[key] = answer.read()
        answer.close()
    client.remove_object(BUCKET, next(key for key in sound if key.endswith(".manifest")))
    try:
        yield
    finally:
        for key, data in sound.items():
            client.put_object(BUCKET, key, io.BytesIO(data), len(data))


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
async def test_a_damaged_log_object_is_found_and_never_served(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic, damage: str
) -> None:
    """The scrub names segment and finding, a consumer gets an error, the rest of the log is read (T17, T63)."""
    topic = await chaos_topics()
    acked = await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(300))
    await topic.until_cold()
    segments = await topic.segments()
    victim = segments[1]
    assert await actions(chaos_suite, topic) == []
    async with replaced(chaos_suite, object_of(chaos_suite, victim, ".log"), damage):
        ((start_offset, finding),) = await actions(chaos_suite, topic)
        assert start_offset == victim.start_offset
        assert finding == ("missing" if damage == "gone" else "corrupt")
        for _ in range(3):
            error, size_bytes = await topic.fetch(victim.start_offset)
            assert size_bytes == 0
            assert error in (ErrorCode.kafka_storage_error, ErrorCode.none)
        before = await asyncio.to_thread(
            consume, chaos_suite.bootstrap, topic.name, victim.start_offset
        )
        assert_same(before[: victim.start_offset], acked[: victim.start_offset])
        behind = victim.end_offset + 1
        after = await asyncio.to_thread(
            consume, chaos_suite.bootstrap, topic.name, len(acked), start=behind
        )
        assert_same(after, acked[behind:])
    assert await actions(chaos_suite, topic) == []
    assert_same(
        await asyncio.to_thread(consume, chaos_suite.bootstrap, topic.name, len(acked)), acked
    )


async def test_a_segment_that_the_store_does_not_know_is_missing(
    chaos_suite: RunningSuite, chaos_topics: MakeTopic
) -> None:
    """Without its manifest a segment is not there (T17)."""
    topic = await chaos_topics()
    await asyncio.to_thread(produce, chaos_suite.bootstrap, topic.name, records_of(200))
    await topic.until_cold()
    victim = (await topic.segments())[0]
    async with without_manifest(chaos_suite, victim):
        # Another process than the one that wrote it, so that nobody remembers it.
        await chaos_suite.restart("storage")
        assert await actions(chaos_suite, topic) == [(victim.start_offset, "missing")]
    await chaos_suite.restart("storage")
    assert await actions(chaos_suite, topic) == []
