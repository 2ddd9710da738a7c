"""A scrub that heals removes proven orphans only, and copies again what a broker still has (T17)."""

from dataclasses import replace

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.ids import RemoteLogSegmentId
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.tasks import Remedy, TaskAction, TaskKey, TaskType
from fixtures.manager_segments import Segment, batch
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, partition

KEY = TaskKey(TIP, TaskType.SCRUB)
OTHER = partition("other")


async def scrub(world: TaskWorld, *, heal: bool = False) -> list[TaskAction]:
    task = ScrubTask(
        world.storage,
        world.metadata,
        world.healing,
        clock=world.clock,
        telemetry=NoTelemetry(),
        grace_ms=60_000,
    )
    return list((await task.run(KEY, heal=heal)).actions)


def shape(action: TaskAction) -> tuple[str, str, str, bool]:
    return (action.action.value, action.reason, action.remedy.value, action.healed)


async def stray(world: TaskWorld, start: int, end: int, *, epoch: int = 0) -> RemoteLogSegmentId:
    """Objects of a segment that metadata never heard of, old enough."""
    segment = Segment(tip=TIP, batches=[batch(start), batch(end)], epochs={epoch: start})
    metadata = segment.metadata()
    await world.storage.copy_log_segment_data(metadata, segment.data())
    return metadata.segment_id


async def three_segments(world: TaskWorld) -> None:
    world.roll(world.leading(), 3)
    await world.copy()
    await world.clock.sleep(120)


async def segment_at(world: TaskWorld, offset: int) -> RemoteLogSegmentMetadata:
    found = await world.metadata.remote_log_segment_metadata(TIP, 0, offset)
    assert found is not None
    return found


async def test_without_healing_nothing_changes(world: TaskWorld) -> None:
    await three_segments(world)
    extra = await stray(world, 0, 99)
    await world.storage.delete_log_segment_data(await segment_at(world, 150))
    for _ in range(2):
        assert [shape(each) for each in await scrub(world)] == [
            ("extra", "NOT_IN_METADATA", "remove", False),
            ("missing", "NOT_IN_STORE", "copy_again", False),
        ]
    assert extra in world.storage.segment_ids


async def test_an_orphan_whose_records_are_elsewhere_is_removed(world: TaskWorld) -> None:
    await three_segments(world)
    await stray(world, 50, 149)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "NOT_IN_METADATA", "remove", True)
    ]
    assert await world.nothing_dangles()
    assert await scrub(world) == []


async def test_removing_orphans_does_not_look_at_the_whole_partition_for_each(
    world: TaskWorld,
) -> None:
    world.segments_per_run = 40
    world.restart()
    world.roll(world.leading(), 40)
    await world.copy()
    await world.clock.sleep(120)
    for number in range(10):
        await stray(world, 100 * number, 100 * number + 99)
    await scrub(world)
    before = world.storage.calls.count("describe_segment")
    healed = await scrub(world, heal=True)
    assert [each.healed for each in healed] == [True] * 10
    looks = world.storage.calls.count("describe_segment") - before
    assert looks <= 40 + 10 * 2


async def test_what_metadata_has_as_deleted_is_removed(world: TaskWorld) -> None:
    """Objects that the store wrote after the deletion of their segment had finished."""
    await three_segments(world)
    gone = await segment_at(world, 50)
    await world.deletions.begin(1, [TIP])
    await world.delete_partition()
    await world.storage.copy_log_segment_data(
        gone, Segment(tip=TIP, batches=[batch(0), batch(99)]).data()
    )
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "DELETED_IN_METADATA", "remove", True)
    ]
    assert not world.storage.segment_ids


async def test_what_is_left_of_a_deleted_partition_is_removed(world: TaskWorld) -> None:
    await three_segments(world)
    await world.deletions.begin(1, [TIP])
    await world.delete_partition()
    await stray(world, 0, 99)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "PARTITION_DELETED", "remove", True)
    ]
    assert not world.storage.segment_ids


async def test_a_partition_that_metadata_does_not_know_loses_nothing(world: TaskWorld) -> None:
    """A database that was lost, or is another one, must not cost the only copy."""
    world.leading()
    extra = await stray(world, 0, 99)
    await world.clock.sleep(120)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "PARTITION_UNKNOWN", "", False)
    ]
    assert extra in world.storage.segment_ids


@pytest.mark.parametrize(
    ("start", "end", "epoch"),
    [(250, 399, 0), (0, 99, 1)],
    ids=["records past all others", "records of another leader epoch"],
)
async def test_what_may_be_the_only_copy_stays(
    world: TaskWorld, start: int, end: int, epoch: int
) -> None:
    """A database restored from a backup has forgotten the latest copies, whose local segments are gone."""
    await three_segments(world)
    extra = await stray(world, start, end, epoch=epoch)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "MAY_BE_THE_ONLY_COPY", "", False)
    ]
    assert extra in world.storage.segment_ids


async def test_local_records_that_the_broker_believes_to_be_remote_are_no_other_copy(
    world: TaskWorld,
) -> None:
    """The database went back to before two copies; their broker may drop its local segments at any moment."""
    await three_segments(world)
    kept = await segment_at(world, 50)
    world.metadata = InMemoryRemoteLogMetadataManager(clock=world.clock)
    await world.metadata.add_remote_log_segment_metadata(
        replace(kept, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED, custom_metadata=None)
    )
    await world.metadata.update_remote_log_segment_metadata(
        RemoteLogSegmentMetadataUpdate(
            segment_id=kept.segment_id,
            event_timestamp_ms=kept.event_timestamp_ms,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            broker_id=1,
            custom_metadata=kept.custom_metadata,
        )
    )
    world.restart()
    log = world.leading()
    assert log.highest_remote_offset == 299
    before = world.storage.segment_ids
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "MAY_BE_THE_ONLY_COPY", "", False),
        ("extra", "MAY_BE_THE_ONLY_COPY", "", False),
    ]
    assert world.storage.segment_ids == before
    log.highest_remote_offset = 99
    healed = await scrub(world, heal=True)
    assert [shape(each) for each in healed] == [("extra", "NOT_IN_METADATA", "remove", True)] * 2


async def test_a_missing_segment_is_found_among_very_many_local_ones(world: TaskWorld) -> None:
    world.segments_per_run = 1200
    world.restart()
    world.roll(world.leading(), 1200)
    await world.copy()
    await world.storage.delete_log_segment_data(await segment_at(world, 110_050))
    task = ScrubTask(
        world.storage, world.metadata, world.healing, clock=world.clock, telemetry=NoTelemetry()
    )
    [found] = (await task.run(KEY, deep=False)).actions
    assert shape(found) == ("missing", "NOT_IN_STORE", "copy_again", False)


async def test_records_in_a_segment_that_is_missing_itself_are_nowhere(world: TaskWorld) -> None:
    await three_segments(world)
    extra = await stray(world, 100, 199)
    await world.storage.delete_log_segment_data(await segment_at(world, 150))
    log = world.broker.logs[TIP]
    log.segments = log.segments[2:]
    log.local_log_start_offset = 200
    assert sorted(shape(each) for each in await scrub(world, heal=True)) == [
        ("extra", "MAY_BE_THE_ONLY_COPY", "", False),
        ("missing", "NOT_IN_STORE", "", False),
    ]
    assert extra in world.storage.segment_ids


async def test_what_lies_below_the_log_start_is_no_only_copy(world: TaskWorld) -> None:
    await three_segments(world)
    log = world.broker.logs[TIP]
    log.log_start_offset = log.local_log_start_offset = 100
    log.segments = log.segments[1:]
    await world.expire()
    await stray(world, 0, 99, epoch=0)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("extra", "NOT_IN_METADATA", "remove", True)
    ]


async def test_nothing_is_removed_when_metadata_does_not_answer_any_more(world: TaskWorld) -> None:
    await three_segments(world)
    extra = await stray(world, 50, 149)
    down = RemoteStorageUnavailableError("down")
    world.faults.inject("segment_history", Fault(error=down))
    with pytest.raises(RemoteStorageUnavailableError):
        await scrub(world, heal=True)
    assert extra in world.storage.segment_ids

    asked: list[object] = []

    def second_time(*args: object, **_: object) -> bool:
        asked.append(args)
        return len(asked) > 1

    world.faults.inject("segment_history", Fault(error=down, when=second_time))
    [left] = await scrub(world, heal=True)
    assert shape(left) == ("extra", "NOT_IN_METADATA", "remove", False)
    assert "down" in left.detail
    assert extra in world.storage.segment_ids


async def test_an_orphan_that_metadata_learns_of_meanwhile_stays(world: TaskWorld) -> None:
    """The database is being rebuilt from the bucket while somebody heals."""
    await three_segments(world)
    extra = await stray(world, 50, 149)
    told: list[object] = []
    rebuilt = Segment(tip=TIP, batches=[batch(50), batch(149)]).metadata()

    judge = world.metadata.segment_history

    async def history(segment_id: RemoteLogSegmentId) -> object:
        found = await judge(segment_id)
        if not told:
            told.append(segment_id)
            await world.metadata.add_remote_log_segment_metadata(replace(rebuilt, segment_id=extra))
        return found

    world.metadata.segment_history = history  # type: ignore[method-assign]
    [left] = await scrub(world, heal=True)
    assert (left.remedy, left.healed) == (Remedy.NONE, False)
    assert extra in world.storage.segment_ids


async def test_a_missing_segment_is_copied_again_from_its_leader(world: TaskWorld) -> None:
    """SR-16."""
    await three_segments(world)
    lost = await segment_at(world, 150)
    await world.storage.delete_log_segment_data(lost)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("missing", "NOT_IN_STORE", "copy_again", True)
    ]
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
    assert (await segment_at(world, 150)).segment_id != lost.segment_id
    assert await world.nothing_dangles()
    assert await scrub(world) == []


async def test_a_missing_segment_that_holds_the_log_start_is_copied_again(world: TaskWorld) -> None:
    """A leader forgets the leader epochs of deleted records."""
    log = world.leading()
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 120), LeaderEpochEntry(2, 150))
    await three_segments(world)
    log.log_start_offset = log.local_log_start_offset = 140
    log.epochs = (LeaderEpochEntry(1, 140), LeaderEpochEntry(2, 150))
    log.segments = log.segments[1:]
    await world.expire()
    [lost] = [each async for each in world.metadata.list_remote_log_segments(TIP, 1)]
    await world.storage.delete_log_segment_data(lost)
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("missing", "NOT_IN_STORE", "copy_again", True)
    ]
    assert await world.finished() == [(100, 199), (200, 299)]
    assert await world.nothing_dangles()


@pytest.mark.parametrize("change", ["gone", "other borders", "other lineage", "no leader"])
async def test_a_missing_segment_that_its_leader_does_not_have_is_only_reported(
    world: TaskWorld, change: str
) -> None:
    await three_segments(world)
    await world.storage.delete_log_segment_data(await segment_at(world, 150))
    log = world.broker.logs[TIP]
    if change == "gone":
        del log.segments[1]
    elif change == "other borders":
        log.segments[1] = replace(log.segments[1], end_offset=180)
    elif change == "other lineage":
        log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 150))
    else:
        world.registry.stop(1, [TIP])
    [found] = await scrub(world, heal=True)
    assert shape(found) == ("missing", "NOT_IN_STORE", "", False)
    assert found.detail
    assert len(await world.finished()) == 3


async def test_a_lost_copy_whose_records_another_copy_holds_leaves_metadata(
    world: TaskWorld,
) -> None:
    """A healing that failed between its copy and the end of the lost one is ended by the next."""
    await three_segments(world)
    lost = await segment_at(world, 150)
    await world.storage.delete_log_segment_data(lost)
    world.storage.fail("delete_log_segment_data", RemoteStorageUnavailableError("down"))
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(times=1, when=lambda update, **_: update.segment_id == lost.segment_id),
    )
    [failed] = await scrub(world, heal=True)
    assert not failed.healed
    world.storage.failures.clear()
    assert [shape(each) for each in await scrub(world, heal=True)] == [
        ("missing", "NOT_IN_STORE", "remove", True)
    ]
    assert await world.nothing_dangles()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
