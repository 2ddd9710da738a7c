"""The copy task (SR-16, K-3.2)."""

import asyncio
from collections.abc import Callable

import pytest
from aquifer_core.errors import (
    AquiferError,
    CorruptRecordError,
    DeadlineExceededError,
    ErrorReason,
    InvalidStateTransitionError,
    NotLeaderError,
    PreconditionError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import (
    CopyResult,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.copy_candidates import select_candidates
from aquifer_manager.domain.ports import RolledSegment
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, SimulatedLog

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def to_state(state: RemoteLogSegmentState) -> Callable[..., bool]:
    def matches(update: RemoteLogSegmentMetadataUpdate, **_: object) -> bool:
        return update.state is state

    return matches


def rolled(*bounds: tuple[int, int]) -> list[RolledSegment]:
    return [
        RolledSegment(base_offset=base, end_offset=end, size_bytes=1, max_timestamp_ms=0)
        for base, end in bounds
    ]


@pytest.mark.parametrize(
    ("from_offset", "last_stable_offset", "chosen"),
    [
        (0, 300, [0, 100, 200]),
        (0, 299, [0, 100]),
        (0, 200, [0, 100]),
        (0, 99, []),
        (100, 300, [100, 200]),
        (150, 300, [100, 200]),
        (199, 200, [100]),
        (300, 300, []),
    ],
)
def test_candidates_reach_from_the_floor_segment_to_the_last_stable_offset(
    from_offset: int, last_stable_offset: int, chosen: list[int]
) -> None:
    """K-3.2: the segment that holds the offset is copied whole; next base offset <= LSO."""
    segments = rolled((0, 99), (100, 199), (200, 299))
    found = select_candidates(segments, from_offset, last_stable_offset)
    assert [segment.base_offset for segment in found] == chosen


async def test_rolled_segments_are_copied_in_order_and_the_broker_is_told(
    world: TaskWorld,
) -> None:
    """SR-16: STARTED, upload, FINISHED with custom metadata, then the broker's highest remote offset."""
    log = world.leading()
    world.roll(log, 3)
    outcome = await world.copy()
    assert [action.segment.start_offset for action in outcome.actions] == [0, 100, 200]
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
    found = await world.metadata.remote_log_segment_metadata(TIP, 0, 150)
    assert found is not None
    assert found.custom_metadata == b"in memory"
    assert log.highest_remote_offset == 299
    assert await world.nothing_dangles()


async def test_a_second_run_copies_only_what_is_new(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    world.roll(log, 1)
    assert [a.segment.start_offset for a in (await world.copy()).actions] == [100]
    assert (await world.copy()).actions == ()


async def test_a_run_copies_a_few_segments_and_then_lets_others_have_their_turn(
    world: TaskWorld,
) -> None:
    """T04: a backlog drains without starving other partitions."""
    world.segments_per_run = 2
    world.restart()
    log = world.leading()
    world.roll(log, 5)
    runs = [await world.copy() for _ in range(3)]
    assert [(len(run.actions), run.more_work) for run in runs] == [
        (2, True),
        (2, True),
        (1, False),
    ]


async def test_nothing_above_the_last_stable_offset_is_copied(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 3)
    log.last_stable_offset = 250
    await world.copy()
    assert await world.finished() == [(0, 99), (100, 199)]


async def test_segment_leader_epochs_are_those_inside_the_segment(world: TaskWorld) -> None:
    log = world.leading(epoch=2)
    world.roll(log, 2)
    log.epochs = (
        LeaderEpochEntry(0, 0),
        LeaderEpochEntry(1, 50),
        LeaderEpochEntry(2, 100),
    )
    outcome = await world.copy()
    assert [dict(a.segment.segment_leader_epochs) for a in outcome.actions] == [
        {0: 0, 1: 50},
        {2: 100},
    ]


async def test_an_unclean_election_copies_again_from_where_the_epoch_was_cut(
    world: TaskWorld,
) -> None:
    """K-3.2 vector: epochs 0@0, 1@150, 2@300, highest of epoch 0 = 200 -> 149 is the highest remote offset."""
    await put(
        Segment(tip=TIP, batches=[batch(0), batch(200)], epochs={0: 0}),
        world.storage,
        world.metadata,
    )
    log = world.leading(epoch=2)
    world.roll(log, 4)
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 150), LeaderEpochEntry(2, 300))
    outcome = await world.copy()
    assert [a.segment.start_offset for a in outcome.actions] == [100, 200, 300]
    assert world.registry.require(TIP).work.copied_offset == 399


async def test_a_new_leader_goes_on_after_what_its_lineage_has_remotely(world: TaskWorld) -> None:
    """A restart or a leader change loses nothing: the highest offset is looked up again."""
    log = world.leading()
    world.roll(log, 2)
    await world.copy()
    world.restart()
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(3, 200))
    log.highest_remote_offset = -1
    world.leading(epoch=3)
    world.roll(log, 1)
    outcome = await world.copy()
    assert [a.segment.start_offset for a in outcome.actions] == [200]


async def test_a_broker_that_forgot_the_highest_remote_offset_is_told_again(
    world: TaskWorld,
) -> None:
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    log.highest_remote_offset = -1
    await world.copy()
    assert log.highest_remote_offset == 99


async def test_a_new_leader_raises_its_log_start_to_what_metadata_knows(world: TaskWorld) -> None:
    """SR-17: the recorded log start wins over the broker's lower one."""
    log = world.leading()
    world.roll(log, 3)
    await world.metadata.update_earliest_log_offset(TIP, 100, 0)
    await world.copy()
    assert log.log_start_offset == 100
    assert await world.finished() == [(100, 199), (200, 299)]


async def test_a_log_without_checkpoint_starts_at_its_first_remote_segment(
    world: TaskWorld,
) -> None:
    """K-3.5: the log start is raised to the first remote segment of the lineage."""
    await put(
        Segment(tip=TIP, batches=[batch(50), batch(99)], epochs={0: 50}),
        world.storage,
        world.metadata,
    )
    log = world.leading()
    world.roll(log, 2)
    del log.segments[0]
    log.local_log_start_offset = 100
    await world.copy()
    assert log.log_start_offset == 50


@pytest.mark.parametrize(
    "error",
    [
        RemoteStorageUnavailableError("store down"),
        DeadlineExceededError("stalled"),
        CorruptRecordError("bad batch"),
        RuntimeError("a bug"),
    ],
)
async def test_a_failed_upload_leaves_nothing_behind_and_is_tried_again_under_a_new_id(
    world: TaskWorld, error: Exception
) -> None:
    """SR-16: a failed copy goes through DELETE_SEGMENT_STARTED and FINISHED, its objects are removed."""
    log = world.leading()
    world.roll(log, 1)
    world.broker.faults.inject("copy_segment", Fault(error, after=True))
    with pytest.raises(type(error)):
        await world.copy()
    assert world.storage.segment_ids == frozenset()
    assert await world.finished() == []
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()
    assert len({each.segment_id for each in world.broker.uploads}) == 2


async def test_an_upload_refused_for_good_is_cleaned_up_at_once(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)
    world.broker.faults.inject("copy_segment", Fault(CorruptRecordError("bad batch")))
    with pytest.raises(CorruptRecordError):
        await world.copy()
    assert await world.listed() == []


async def test_an_upload_whose_answer_got_lost_is_deleted_twice(world: TaskWorld) -> None:
    """The upload may still be writing when it is taken back: the next expiration deletes once more."""
    log = world.leading()
    world.roll(log, 1)
    world.broker.faults.inject("copy_segment", Fault(DeadlineExceededError("lost"), after=True))
    with pytest.raises(DeadlineExceededError):
        await world.copy()
    assert await world.listed() == [(0, 99, "DELETE_SEGMENT_STARTED")]
    late = world.broker.uploads[0]
    await world.upload(late)
    await world.expire()
    assert await world.listed() == []
    assert world.storage.segment_ids == frozenset()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 50])
async def test_a_start_that_cannot_be_recorded_is_not_uploaded(
    world: TaskWorld, after: bool, times: int
) -> None:
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject("add_remote_log_segment_metadata", Fault(after=after, times=times))
    if times == 50:
        with pytest.raises(RemoteStorageUnavailableError):
            await world.copy()
        assert world.broker.uploads == []
        world.faults.by_method.clear()
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_a_lost_answer_to_finished_is_asked_again_within_the_run(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata", Fault(after=True, when=to_state(FINISHED))
    )
    await world.copy()
    assert await world.finished() == [(0, 99)]
    assert "delete_log_segment_data" not in world.faults.calls


@pytest.mark.parametrize("after", [False, True])
async def test_a_copy_whose_end_is_unknown_keeps_its_objects_and_is_finished_by_the_next_run(
    world: TaskWorld, after: bool
) -> None:
    """Objects of a segment that may be finished are never deleted."""
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(after=after, times=100, when=to_state(FINISHED)),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    await world.expire()
    assert len(world.storage.segment_ids) == 1
    world.faults.by_method.clear()
    await world.copy()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()
    assert len(world.broker.uploads) == 1


async def test_a_fenced_copy_is_taken_back_and_the_partition_waits_for_its_leader(
    world: TaskWorld,
) -> None:
    """SR-22, T12: a zombie leader cannot finish a copy; its objects go."""
    log = world.leading()
    world.roll(log, 2)

    async def overtaken(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.metadata.on_partition_leadership_changes({TIP: 5}, [])
        return await world.upload(metadata)

    world.broker.upload = overtaken
    with pytest.raises(StaleLeaderEpochError):
        await world.copy()
    assert await world.listed() == []
    assert world.storage.segment_ids == frozenset()
    calls = len(world.broker.faults.calls)
    with pytest.raises(StaleLeaderEpochError, match="waiting for the leader"):
        await world.copy()
    assert len(world.broker.faults.calls) == calls
    world.broker.upload = world.upload
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(6, 200))
    world.leading(epoch=6)
    await world.copy()
    assert await world.finished() == [(0, 99), (100, 199)]


async def test_a_fence_after_a_finished_that_went_through_keeps_the_segment(
    world: TaskWorld,
) -> None:
    """The history decides what an attempt without answer did."""
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(after=True, times=100, when=to_state(FINISHED)),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    world.faults.by_method.clear()
    await world.metadata.on_partition_leadership_changes({TIP: 5}, [])
    await world.copy()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_a_copy_in_flight_completes_when_leadership_moves(world: TaskWorld) -> None:
    """SR-22: the copy ends and commits; the rest of the run is left to the new leader."""
    log = world.leading()
    world.roll(log, 3)

    async def moving(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        world.registry.stop(1, [TIP])
        return await world.upload(metadata)

    world.broker.upload = moving
    outcome = await world.copy()
    assert [a.segment.start_offset for a in outcome.actions] == [0]
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


@pytest.mark.parametrize("step", [DELETE_STARTED, DELETE_FINISHED])
async def test_a_clean_up_that_fails_is_ended_later(
    world: TaskWorld, step: RemoteLogSegmentState
) -> None:
    """T10: half-copies are retried until they are gone."""
    log = world.leading()
    world.roll(log, 1)
    world.broker.faults.inject("copy_segment", Fault(CorruptRecordError("bad"), after=True))
    world.faults.inject("update_remote_log_segment_metadata", Fault(when=to_state(step)))
    with pytest.raises(CorruptRecordError):
        await world.copy()
    assert len(await world.listed()) == 1
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_objects_that_cannot_be_deleted_do_not_stop_the_copies(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)
    world.broker.faults.inject("copy_segment", Fault(CorruptRecordError("bad"), after=True))
    world.faults.inject("delete_log_segment_data", Fault(times=100))
    with pytest.raises(CorruptRecordError):
        await world.copy()
    await world.copy()
    assert await world.finished() == [(0, 99)]
    world.faults.by_method.clear()
    await world.expire()
    assert await world.nothing_dangles()


async def test_a_run_cancelled_during_an_upload_is_taken_back_by_the_next_one(
    world: TaskWorld,
) -> None:
    """The run's deadline cancels it wherever it is."""
    log = world.leading()
    world.roll(log, 1)

    async def hanging(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.upload(metadata)
        await asyncio.Event().wait()
        raise AssertionError

    world.broker.upload = hanging
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await world.copy()
    assert await world.listed() == [(0, 99, "COPY_SEGMENT_STARTED")]
    world.broker.upload = world.upload
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


@pytest.mark.parametrize("epoch", [0, 1], ids=["manager killed", "broker killed too"])
async def test_a_copy_left_by_a_dead_manager_goes_with_the_next_run(
    world: TaskWorld, epoch: int
) -> None:
    """T16: kill -9 during a copy leaves no orphan behind the next run of the tasks."""
    log = world.leading()
    world.roll(log, 1)

    async def killed(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.upload(metadata)
        raise KeyboardInterrupt

    world.broker.upload = killed
    with pytest.raises(KeyboardInterrupt):
        await world.copy()
    world.restart()
    world.leading(epoch=epoch)
    world.broker.upload = world.upload
    await world.copy()
    await world.expire()
    assert await world.listed() == [(0, 99, "COPY_SEGMENT_FINISHED")]
    assert await world.nothing_dangles()


async def test_a_manager_whose_copy_is_taken_back_by_another_loses_that_copy_only(
    world: TaskWorld,
) -> None:
    """Two managers on one partition by accident: the copy of the first is refused, its objects go, nothing else is harmed."""
    log = world.leading()
    world.roll(log, 1)
    first = world.copy_task

    async def overtaken(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        world.broker.upload = world.upload
        world.restart()
        world.announce(0)
        await world.copy()
        return await world.upload(metadata)

    world.broker.upload = overtaken
    with pytest.raises(AquiferError):
        await first.run(TaskKey(TIP, TaskType.COPY))
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert await world.nothing_dangles()


async def test_a_partition_deleted_during_a_copy_leaves_no_objects(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)

    async def deleted_meanwhile(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.delete_partition()
        return await world.upload(metadata)

    world.broker.upload = deleted_meanwhile
    with pytest.raises(AquiferError):
        await world.copy()
    assert world.storage.segment_ids == frozenset()


async def test_a_broker_that_does_not_lead_is_not_worked_for(world: TaskWorld) -> None:
    """An announcement that comes before the broker's own view is only early: the next run tries again."""
    log = world.leading(epoch=1)
    world.roll(log, 1)
    log.leader = False
    with pytest.raises(NotLeaderError, match="follows it in epoch 1"):
        await world.copy()
    log.leader = True
    await world.copy()
    assert await world.finished() == [(0, 99)]


async def test_custom_metadata_that_is_too_large_takes_the_copy_back(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)

    async def large(metadata: RemoteLogSegmentMetadata) -> CopyResult:
        await world.upload(metadata)
        return CopyResult(custom_metadata=bytes(129), stored_bytes=1, log_sha256="")

    world.broker.upload = large
    with pytest.raises(AquiferError, match="129 bytes"):
        await world.copy()
    assert await world.listed() == []
    assert world.storage.segment_ids == frozenset()


async def test_offsets_that_contradict_each_other_defer_the_copy(world: TaskWorld) -> None:
    """SR-20: a violation is counted, carries the five offsets, and nothing is copied."""
    log = world.leading()
    world.roll(log, 2)
    log.log_end_offset = 150
    with pytest.raises(PreconditionError, match="last_stable <= log_end") as raised:
        await world.copy()
    assert raised.value.reason is ErrorReason.OFFSET_CONSTRAINT
    assert raised.value.metadata == {
        "log_start": "0",
        "local_log_start": "0",
        "highest_remote": "-1",
        "last_stable": "200",
        "log_end": "150",
    }
    assert world.registry.require(TIP).work.constraint_violations == 1
    assert await world.listed() == []


async def test_the_copy_quota_delays_what_follows_a_large_segment(world: TaskWorld) -> None:
    """KIP-956: a segment larger than the quota passes and delays the next one."""
    world.copy_bytes_per_second = 10
    world.restart()
    log = world.leading()
    world.roll(log, 2)
    size_bytes = log.segments[0].size_bytes
    before = world.clock.monotonic_s()
    await world.copy()
    waited_s = world.clock.monotonic_s() - before
    assert waited_s == pytest.approx((size_bytes - 10) / 10, rel=0.05)


def test_disabled_copying_leaves_the_expiration(world: TaskWorld) -> None:
    """KIP-950: no new copies; reading and expiration go on. A topic that is not tiered has no task at all."""

    def tasks(config: TopicConfig) -> set[str]:
        world.announce(0, config)
        return {key.type.name for key in world.registry.tasks(TIP)}

    assert tasks(TopicConfig()) == {"COPY", "EXPIRATION"}
    assert tasks(TopicConfig(remote_log_copy_disable=True)) == {"EXPIRATION"}
    assert tasks(TopicConfig(remote_storage_enable=False)) == set()


async def test_an_invalid_transition_while_taking_back_deletes_the_objects_anyway(
    world: TaskWorld,
) -> None:
    log: SimulatedLog = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(InvalidStateTransitionError("reaped"), when=to_state(FINISHED)),
    )
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(InvalidStateTransitionError("reaped"), when=to_state(DELETE_STARTED)),
    )
    with pytest.raises(InvalidStateTransitionError):
        await world.copy()
    assert world.storage.segment_ids == frozenset()


async def test_what_a_disabled_copy_left_open_is_ended_by_the_expiration(
    world: TaskWorld,
) -> None:
    """Otherwise retention would stop at it for ever."""
    log = world.leading()
    world.roll(log, 1)
    world.faults.inject(
        "update_remote_log_segment_metadata", Fault(times=100, when=to_state(FINISHED))
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    world.faults.by_method.clear()
    world.announce(0, TopicConfig(remote_log_copy_disable=True))
    await world.expire()
    assert await world.finished() == [(0, 99)]
    assert world.registry.require(TIP).work.in_progress == set()


async def test_many_old_local_segments_below_the_log_start_do_not_hide_the_newer_ones(
    world: TaskWorld,
) -> None:
    world.segments_per_run = 2
    world.restart()
    log = world.leading()
    world.roll(log, 10)
    log.log_start_offset = log.local_log_start_offset = 800
    await world.copy()
    assert await world.finished() == [(800, 899), (900, 999)]
