"""Deleting a topic deletes its remote data, and only its own."""

import asyncio

import pytest
from fixtures.kafka_traffic import assert_same, consume, produce, records_of
from fixtures.polling import eventually
from fixtures.scrub import stored_objects
from fixtures.suite import E2E_GROUP, RunningSuite
from fixtures.tiered_topic import MakeTopic

pytestmark = pytest.mark.xdist_group(E2E_GROUP)


async def test_the_bucket_has_nothing_of_a_deleted_topic(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """All partitions, on all brokers; a topic whose name begins the same keeps its data (T20)."""
    doomed = await topics(4)
    bystander = await topics(name=f"{doomed.name}-2")
    kept = await asyncio.to_thread(produce, suite.bootstrap, bystander.name, records_of(200))
    for partition in range(4):
        await asyncio.to_thread(
            produce, suite.bootstrap, doomed.name, records_of(200), partition=partition
        )
        await doomed.until_cold(partition)
    assert set(doomed.leaders.values()) == {1, 2}
    assert len({key.split("/")[1] for key in stored_objects(suite, doomed.tip())}) == 4
    offsets = await bystander.until_cold()
    await doomed.delete()
    await doomed.until_gone()
    assert_same(
        await asyncio.to_thread(consume, suite.bootstrap, bystander.name, offsets.end), kept
    )


async def test_a_topic_made_again_under_its_name_starts_anew(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Old segments belong to another topic id; nobody reads them as the new topic's."""
    old = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, old.name, records_of(300))
    await old.until_cold()
    await old.delete()
    new = await topics(name=old.name)
    assert new.topic_id != old.topic_id
    assert (await new.offsets()).end == 0
    acked = await asyncio.to_thread(produce, suite.bootstrap, new.name, records_of(250, seed=5))
    offsets = await new.until_cold()
    assert_same(await asyncio.to_thread(consume, suite.bootstrap, new.name, offsets.end), acked)
    await eventually(lambda: not stored_objects(suite, old.tip()), timeout_s=60)


async def test_a_topic_deleted_while_it_is_copied_leaves_nothing(
    suite: RunningSuite, topics: MakeTopic
) -> None:
    """Copies under way end or are undone, and what they made goes with the rest."""
    topic = await topics()
    await asyncio.to_thread(produce, suite.bootstrap, topic.name, records_of(1000))
    await topic.delete()
    await topic.until_gone()
