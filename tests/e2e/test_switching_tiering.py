"""Tiering of a topic is turned on, paused and turned off while it has data."""

import asyncio

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from confluent_kafka import KafkaError, KafkaException
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.scrub import stored_objects
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def test_an_existing_topic_is_tiered_from_its_first_record(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """What was there before is copied as well (EnableRemoteLogOnTopicTest, K-7.1)."""
    topic = await topics(remote_storage_enable="false", local_retention_bytes="-2")
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    assert not stored_objects(suite, topic.tip())
    assert (await topic.offsets()).local_start == 0
    await topic.alter(remote_storage_enable="true", local_retention_bytes="1")
    acked += await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(100, seed=1))
    offsets = await topic.until_cold()
    assert offsets.local_start > 300
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, offsets.end), acked)


async def test_copying_is_paused_and_goes_on_where_it_stopped(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """With `remote.log.copy.disable` reads of the cold part go on, nothing new is copied (K-3.12)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    before = await topic.until_cold()
    await topic.alter(remote_log_copy_disable="true", local_retention_bytes="-2")
    await eventually(lambda: _copying_is_off(suite, topic.name))
    acked += await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300, seed=1))
    assert (await topic.offsets()).tiered == before.tiered
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, 600), acked)
    assert (await topic.offsets()).tiered == before.tiered
    await topic.alter(remote_log_copy_disable="false", local_retention_bytes="1")
    after = await topic.until_cold()
    assert after.tiered > before.tiered + 200
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, topic.name, 600), acked)


async def test_tiering_ends_only_together_with_the_remote_data(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """The log then begins where the local part does (DisableRemoteLogOnTopicTest, K-7.1)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    before = await topic.until_cold()
    with pytest.raises(KafkaException) as caught:
        await topic.alter(remote_storage_enable="false")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    await topic.alter(
        remote_storage_enable="false",
        remote_log_delete_on_disable="true",
        local_retention_bytes="-2",
    )
    await eventually(lambda: not stored_objects(suite, topic.tip()), timeout_s=60)

    async def local_only() -> bool:
        return (await topic.offsets()).log_start == before.local_start

    await eventually(local_only, timeout_s=60)
    consumed = await asyncio.to_thread(
        consume, suite.bootstrap, topic.name, before.end, start=before.local_start
    )
    assert_same(consumed, acked[before.local_start :])


async def test_tiering_begins_anew_where_the_log_does_once_its_remote_data_is_gone(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Under the same topic id, without a restart of anything (KIP-950)."""
    topic = await topics()
    acked = await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300))
    before = await topic.until_cold()
    await topic.alter(
        remote_storage_enable="false",
        remote_log_delete_on_disable="true",
        local_retention_bytes="-2",
    )
    refusals: list[KafkaError] = []

    async def enabled_again() -> bool:
        try:
            await topic.alter(remote_storage_enable="true", local_retention_bytes="1")
        except KafkaException as error:
            refusals.append(error.args[0])
            return False
        return True

    await eventually(enabled_again, timeout_s=60)
    assert all(error.code() == KafkaError.INVALID_CONFIG for error in refusals)
    assert all("still being deleted" in error.str() for error in refusals)
    acked += await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(300, seed=1))
    after = await topic.until_cold()
    assert after.log_start == before.local_start
    assert after.local_start > before.end
    consumed = await asyncio.to_thread(
        consume, suite.bootstrap, topic.name, after.end, start=after.log_start
    )
    assert_same(consumed, acked[after.log_start :])


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_compacted_topics_are_refused(
    suite: RunningSuite, topics: MakeTopic, policy: str
) -> None:
    """On creation and on alteration, with a message that says why (SR-12)."""
    with pytest.raises(KafkaException) as created:
        await topics(cleanup_policy=policy)
    topic = await topics()
    with pytest.raises(KafkaException) as altered:
        await topic.alter(cleanup_policy=policy)
    for caught in (created, altered):
        error = caught.value.args[0]
        assert error.code() == KafkaError.INVALID_CONFIG
        assert "compacted topics are not supported with remote storage" in error.str()


async def _copying_is_off(suite: RunningSuite, topic: str) -> bool:
    async with suite.manager_stub() as manager:
        pages = manager.ListPartitions(pb.ListPartitionsRequest(topic=topic))
        return all(
            state.config.remote_log_copy_disable
            for page in [page async for page in pages]
            for state in page.partitions
        )
