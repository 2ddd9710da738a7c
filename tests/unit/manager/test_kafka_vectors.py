"""Vectors of Kafka's own tests of its RemoteLogManager that no other test here has (K-3)."""

import asyncio

import pytest
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.leader_log import find_highest_remote_offset, find_log_start_offset
from aquifer_manager.domain.ports import LogQuery
from aquifer_manager.domain.tasks import ActionKind, TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import START_MS, SimulatedLog
from fixtures.polling import eventually

EPOCHS = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 150), LeaderEpochEntry(2, 300))


def _everything() -> LogQuery:
    return LogQuery(topic_id_partition=TIP, max_segments=100)


def _finished(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=segment.segment_id,
        event_timestamp_ms=START_MS,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=1,
    )


async def stored(
    world: TaskWorld, start: int, end: int, epochs: dict[int, int]
) -> RemoteLogSegmentMetadata:
    segment = Segment(tip=TIP, batches=[batch(start), batch(end)], epochs=epochs)
    return await put(segment, world.storage, world.metadata)


async def test_the_highest_remote_offset_after_an_unclean_election(world: TaskWorld) -> None:
    """K-3.2: epochs 0@0, 1@150, 2@300 and a copy of epoch 0 up to 200 -> 149."""
    log = world.leading(epoch=2)
    log.epochs, log.log_end_offset, log.last_stable_offset = EPOCHS, 500, 500
    described = log.describe(_everything())
    assert await find_highest_remote_offset(world.metadata, described) == -1
    await stored(world, 0, 200, {0: 0})
    assert await find_highest_remote_offset(world.metadata, described) == 149
    await stored(world, 150, 250, {1: 150})
    assert await find_highest_remote_offset(world.metadata, described) == 250


async def test_the_log_start_is_the_first_remote_segment_else_the_first_local_one(
    world: TaskWorld,
) -> None:
    """K-3.2, `findLogStartOffset`."""
    log = world.leading(epoch=2)
    log.epochs, log.log_end_offset, log.last_stable_offset = EPOCHS, 500, 500
    log.local_log_start_offset = 250
    described = log.describe(_everything())
    assert await find_log_start_offset(world.metadata, described) == 250
    await stored(world, 100, 149, {0: 100})
    assert await find_log_start_offset(world.metadata, described) == 100


@pytest.mark.parametrize("unfinished", ["started", "other lineage"])
async def test_segments_that_are_not_finished_or_not_in_the_lineage_have_no_times(
    unfinished: str,
) -> None:
    """K-3.9: the same three records, in a copy that is not finished, or of another leader -> none."""
    metadata = InMemoryRemoteLogMetadataManager()
    records = [batch(120 + n, timestamp_ms=START_MS + t) for n, t in enumerate((-1, 1, 2))]
    epochs = {10: 120} if unfinished == "started" else {9: 120}
    segment = Segment(tip=TIP, batches=records, epochs=epochs).metadata()
    await metadata.add_remote_log_segment_metadata(segment)
    if unfinished != "started":
        await metadata.update_remote_log_segment_metadata(_finished(segment))
    for timestamp_ms in (START_MS - 1, START_MS, START_MS + 2):
        found = await metadata.find_segment_for_timestamp(TIP, {10: 120}, timestamp_ms)
        assert found is None


async def test_segments_being_copied_are_skipped_and_deleted_by_the_next_run(
    world: TaskWorld,
) -> None:
    """K-3.4, `testDeletionSkippedForSegmentsBeingCopied`."""
    log = world.leading(config=TopicConfig(retention_ms=0))
    world.roll(log, 2)
    during: list[int] = []
    upload = world.broker.upload
    assert upload is not None

    async def expired_meanwhile(metadata: RemoteLogSegmentMetadata) -> object:
        await world.clock.sleep(1)
        if metadata.start_offset == 100:
            # Both are on their way at once; the first one is committed meanwhile.
            await eventually(lambda: work.copied_offset == 99, timeout_s=30)
        during.append(len((await world.expire()).actions))
        return await upload(metadata)

    world.broker.upload = expired_meanwhile  # type: ignore[assignment]
    work = world.registry.require(TIP).work
    await world.copy()
    # During the second copy the first segment goes; what is being copied stays.
    assert during == [0, 1]
    world.broker.upload = upload
    outcome = await world.expire()
    assert [action.action for action in outcome.actions] == [ActionKind.DELETED]
    assert await world.nothing_dangles()


async def test_a_deletion_cancelled_between_two_segments_goes_on_with_the_next_run(
    world: TaskWorld,
) -> None:
    """K-3.4, `testDeleteLogSegmentDueToRetentionTimeBreachWithCancellation`."""
    log = world.leading(config=TopicConfig(retention_ms=0))
    world.roll(log, 3)
    await world.copy()
    await world.clock.sleep(1)
    deleted = asyncio.Event()
    delete = world.storage.delete_log_segment_data

    async def second_one_hangs(metadata: RemoteLogSegmentMetadata) -> None:
        if deleted.is_set():
            await asyncio.Event().wait()
        await delete(metadata)
        deleted.set()

    world.storage.delete_log_segment_data = second_one_hangs  # type: ignore[method-assign]
    run = asyncio.create_task(world.expiration_task.run(TaskKey(TIP, TaskType.EXPIRATION)))
    await deleted.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert log.log_start_offset == 300
    assert len(world.storage.segment_ids) >= 1
    world.storage.delete_log_segment_data = delete  # type: ignore[method-assign]
    await world.expire()
    assert await world.listed() == []
    assert not world.storage.segment_ids


async def test_copies_that_are_not_finished_do_not_count_in_the_size(world: TaskWorld) -> None:
    """K-3.4: a COPY_SEGMENT_STARTED leftover makes nothing else go."""
    log: SimulatedLog = world.leading()
    world.roll(log, 2)
    await world.copy()
    size_bytes = log.segments[0].size_bytes
    leftover = Segment(tip=TIP, batches=[batch(0), batch(99)], epochs={0: 0}).metadata()
    await world.metadata.add_remote_log_segment_metadata(leftover)
    world.announce(0, TopicConfig(retention_bytes=2 * size_bytes))
    assert (await world.expire()).actions == ()
    assert await world.finished() == [(0, 99), (100, 199)]
