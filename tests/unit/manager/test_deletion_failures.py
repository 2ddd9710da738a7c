"""Segments that could not be deleted are published until they are gone (SR-17, SR-35)."""

import json
from typing import Any

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_manager.domain.deletion_failures import DeletionFailures
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import START_MS, Fault, HastyClock


async def failing_world(world: TaskWorld, times: int) -> None:
    log = world.leading(config=TopicConfig(retention_ms=0))
    world.roll(log, 1)
    await world.copy()
    await world.clock.sleep(1)
    world.faults.inject("delete_log_segment_data", Fault(times=times))
    for _ in range(times):
        with pytest.raises(RemoteStorageUnavailableError):
            await world.expire()
        await world.clock.sleep(1)


def document(world: TaskWorld, number: int) -> dict[str, Any]:
    value = world.failure_topic.records[number][1]
    assert value is not None
    read: dict[str, Any] = json.loads(value)
    return read


async def test_a_failure_is_published_with_everything_needed_to_delete_by_hand(
    world: TaskWorld,
) -> None:
    await failing_world(world, 2)
    await world.failures.flush()
    (segment_id,) = world.storage.segment_ids
    (key, _), *_ = world.failure_topic.records
    assert key == str(segment_id.id)
    assert document(world, 0) == {
        "topic": "events",
        "topicId": str(TIP.topic_id),
        "partition": 0,
        "segmentId": key,
        "startOffset": 0,
        "endOffset": 99,
        "objectKeys": [
            f"events-{TIP.topic_id}/0/{0:020d}-{key}{suffix}"
            for suffix in (".log", ".indexes", ".manifest")
        ],
        "reason": "OBJECT_STORE_UNAVAILABLE",
        "attempts": 2,
        "firstFailureMs": START_MS + 1000,
        "lastFailureMs": START_MS + 2000,
    }


async def test_a_success_writes_a_tombstone(world: TaskWorld) -> None:
    await failing_world(world, 1)
    await world.failures.flush()
    await world.expire()
    assert world.failures.failing() == []
    await world.failures.flush()
    key = world.failure_topic.records[0][0]
    assert world.failure_topic.records[1:] == [(key, None)]


async def test_another_process_writes_the_tombstone_of_what_it_finds_unfinished(
    world: TaskWorld,
) -> None:
    await failing_world(world, 1)
    await world.failures.flush()
    world.restart()
    world.announce(0, TopicConfig(retention_ms=0))
    await world.expire()
    await world.failures.flush()
    assert [value is None for _, value in world.failure_topic.records] == [False, True]


async def test_a_deleted_topic_leaves_no_failure_behind(world: TaskWorld) -> None:
    """The process that published it is gone, and the segment went with its partition."""
    await failing_world(world, 1)
    await world.failures.flush()
    world.restart()
    await world.deletions.begin(1, [TIP])
    await world.delete_partition()
    await world.failures.flush()
    assert [value is None for _, value in world.failure_topic.records] == [False, True]


async def test_deletions_that_succeed_are_not_published(world: TaskWorld) -> None:
    await failing_world(world, 0)
    await world.expire()
    await world.failures.flush()
    assert world.failure_topic.records == []


async def test_what_could_not_be_published_is_published_later(world: TaskWorld) -> None:
    await failing_world(world, 1)
    world.failure_topic.errors = [ConnectionError("no broker")]
    with pytest.raises(ConnectionError):
        await world.failures.flush()
    await world.failures.flush()
    await world.failures.flush()
    assert len(world.failure_topic.records) == 1


async def test_without_a_topic_failures_are_only_remembered(world: TaskWorld) -> None:
    failures = DeletionFailures(world.storage, None, clock=HastyClock())
    segment = Segment(tip=TIP, batches=[batch(0)]).metadata()
    failures.failed(segment, RemoteStorageUnavailableError("down"))
    await failures.flush()
    assert [entry.segment for entry in failures.failing()] == [segment]
