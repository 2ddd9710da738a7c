"""Deleted partitions lose their remote data, whoever dies meanwhile: metadata alone knows what is left to do (T20)."""

from collections.abc import AsyncIterator

import pytest
from aquifer_core.errors import AquiferError, RemoteStorageUnavailableError
from aquifer_core.segment import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld
from fixtures.manager_world import Fault, Killed

DELETION = TaskKey(TIP, TaskType.PARTITION_DELETION)
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


async def deleting(world: TaskWorld, segments: int) -> None:
    """A partition with copied segments, marked."""
    log = world.leading()
    world.roll(log, segments)
    await world.copy()
    world.registry.stop(1, [TIP])
    await world.deletions.begin(1, [TIP])


async def deletions(world: TaskWorld) -> list[RemotePartitionDeleteMetadata]:
    return [deletion async for deletion in world.metadata.list_partition_deletions()]


async def delete_with_restarts(world: TaskWorld) -> TaskOutcome:
    """Runs of managers each of which dies when something fails, until one has finished."""
    for _ in range(20):
        try:
            outcome = await world.delete_partition()
        except RemoteStorageUnavailableError:
            world.restart()
        else:
            if outcome.finished:
                return outcome
    raise AssertionError("the deletion does not come to an end")


async def test_a_partition_is_deleted_in_bounded_runs(world: TaskWorld) -> None:
    await deleting(world, 10)
    runs = [await world.delete_partition() for _ in range(3)]
    assert [(len(run.actions), run.more_work, run.finished) for run in runs] == [
        (4, True, False),
        (4, True, False),
        (2, False, True),
    ]
    assert world.storage.segment_ids == frozenset()
    assert await deletions(world) == []


@pytest.mark.parametrize(
    ("method", "times"),
    [
        ("put_remote_partition_delete_metadata", 1),
        ("put_remote_partition_delete_metadata", 2),
        ("update_remote_log_segment_metadata", 1),
        ("update_remote_log_segment_metadata", 3),
        ("delete_log_segment_data", 1),
        ("delete_log_segment_data", 3),
        ("segment_history", 1),
    ],
)
@pytest.mark.parametrize("after", [False, True])
async def test_a_deletion_that_fails_anywhere_goes_on_in_another_process(
    world: TaskWorld, method: str, times: int, after: bool
) -> None:
    """T20: the job is resumable at any point, from metadata alone."""
    await deleting(world, 3)
    world.faults.inject(method, Fault(times=times, after=after))
    assert (await delete_with_restarts(world)).finished
    assert world.storage.segment_ids == frozenset()
    assert await deletions(world) == []


async def test_the_steps_are_recorded_in_order(world: TaskWorld) -> None:
    await deleting(world, 1)
    await world.delete_partition()
    states = []
    async for change in world.metadata.watch_partition(TIP, from_version=1):
        if change.delete_state is not None:
            states.append(change.delete_state)
        if change.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            break
    assert [state.name for state in states] == [
        "DELETE_PARTITION_MARKED",
        "DELETE_PARTITION_STARTED",
        "DELETE_PARTITION_FINISHED",
    ]


async def test_a_partition_that_is_not_marked_loses_nothing(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 2)
    await world.copy()
    assert (await world.delete_partition()).finished, "a deletion that was taken back"
    assert await world.finished() == [(0, 99), (100, 199)]
    assert len(world.storage.segment_ids) == 2


async def test_a_deletion_that_may_still_be_taken_back_is_not_begun(world: TaskWorld) -> None:
    """Metadata says which deletions are due (`undelete_grace_s`), also to the manager that its broker asked for one."""
    listing = world.metadata.list_partition_deletions

    async def patient() -> AsyncIterator[RemotePartitionDeleteMetadata]:
        async for deletion in listing():
            if world.clock.now_ms() - deletion.event_timestamp_ms >= 60_000:
                yield deletion

    world.metadata.list_partition_deletions = patient  # type: ignore[method-assign]
    await deleting(world, 1)
    assert world.scheduled == []
    await world.clock.sleep(61)
    await world.deletions.look()
    assert world.scheduled == [DELETION]


async def test_a_manager_finds_what_others_left_and_adds_each_deletion_again_and_again(
    world: TaskWorld,
) -> None:
    await deleting(world, 1)
    world.restart()
    assert world.scheduled == []
    for _ in range(2):
        await world.deletions.look()
    assert world.scheduled == [DELETION, DELETION], "the scheduler keeps one that is there"
    await world.delete_partition()
    await world.deletions.look()
    assert len(world.scheduled) == 2


async def test_a_deletion_is_not_begun_before_metadata_knows_of_it(world: TaskWorld) -> None:
    """Whoever asked repeats it."""
    world.faults.inject("put_remote_partition_delete_metadata")
    with pytest.raises(RemoteStorageUnavailableError):
        await world.deletions.begin(1, [TIP])
    assert world.scheduled == []
    await world.deletions.begin(1, [TIP])
    assert world.scheduled == [DELETION]
    [marked] = await deletions(world)
    assert (marked.topic_id_partition, marked.broker_id) == (TIP, 1)


async def test_a_deletion_may_be_asked_for_at_any_time(world: TaskWorld) -> None:
    """Idempotent: a broker may repeat StopPartitions while it goes on, and after its end."""
    await deleting(world, 5)
    await world.delete_partition()
    await world.deletions.begin(1, [TIP])
    assert (await world.delete_partition()).finished
    await world.deletions.begin(1, [TIP])
    assert (await world.delete_partition()).finished
    assert await deletions(world) == []


async def test_managers_that_delete_the_same_partition_do_no_harm(world: TaskWorld) -> None:
    """One stands still at every point of its run while another one does everything."""
    await deleting(world, 3)
    first = world.deletion_task
    world.restart()
    second = world.deletion_task
    rivals: list[bool] = []
    finished: list[bool] = []
    original = world.storage.delete_log_segment_data

    async def delete(metadata: RemoteLogSegmentMetadata) -> None:
        await original(metadata)
        if not rivals:
            rivals.append(True)
            finished.append((await second.run(DELETION)).finished)

    world.storage.delete_log_segment_data = delete  # type: ignore[method-assign]
    outcome = await first.run(DELETION)
    assert finished == [True]
    assert outcome.finished
    assert world.storage.segment_ids == frozenset()
    assert await deletions(world) == []


async def stuck_copy(world: TaskWorld) -> RemoteLogSegmentMetadata:
    """A copy whose manager died while the broker uploads; it has uploaded nothing yet."""
    log = world.leading()
    world.roll(log, 1)
    uploads: list[RemoteLogSegmentMetadata] = []

    async def dies(metadata: RemoteLogSegmentMetadata) -> None:
        uploads.append(metadata)
        raise Killed

    world.broker.upload = dies  # type: ignore[assignment]
    with pytest.raises(Killed):
        await world.copy()
    world.restart()
    await world.deletions.begin(-1, [TIP])
    return uploads[0]


async def test_a_copy_that_outlives_its_manager_leaves_nothing_behind(world: TaskWorld) -> None:
    copying = await stuck_copy(world)
    assert not (await world.delete_partition()).finished
    await world.upload(copying)
    assert world.storage.segment_ids == {copying.segment_id}
    assert not (await world.delete_partition()).finished
    assert world.storage.segment_ids == frozenset(), "objects go before the entry may"
    assert [state for *_, state in await world.listed()] == [DELETING.name]
    await world.clock.advance(ABANDONED_AFTER_MS / 1000)
    assert (await world.delete_partition()).finished
    assert await deletions(world) == []


async def test_waiting_for_a_copy_is_not_written_down_again_and_again(world: TaskWorld) -> None:
    copying = await stuck_copy(world)
    for _ in range(3):
        outcome = await world.delete_partition()
        assert not outcome.more_work, "it is looked at again after the interval"
    history = await world.metadata.segment_history(copying.segment_id)
    assert [event.to_state.name for event in history] == [
        "COPY_SEGMENT_STARTED",
        "DELETE_SEGMENT_STARTED",
    ]


async def test_a_copy_of_a_living_manager_cannot_finish_and_cleans_up(world: TaskWorld) -> None:
    """The topic is deleted, and its deletion runs, while a segment uploads."""
    log = world.leading()
    world.roll(log, 2)
    runs: list[TaskOutcome] = []
    upload = world.broker.upload

    async def meanwhile(metadata: RemoteLogSegmentMetadata) -> object:
        await world.deletions.begin(-1, [TIP])
        runs.append(await world.delete_partition())
        assert upload is not None
        return await upload(metadata)

    world.broker.upload = meanwhile  # type: ignore[assignment]
    with pytest.raises(AquiferError):
        await world.copy()
    assert runs
    assert not any(run.finished for run in runs)
    assert world.storage.segment_ids == frozenset()
    assert (await world.delete_partition()).finished, "the copy has ended its own entry"
    with pytest.raises(AquiferError, match="being deleted"):
        await world.copy()
    assert world.storage.segment_ids == frozenset()
