"""Which segments a leader copies, in which order, and where it begins (SR-16, K-3.2)."""

import pytest
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.copy_candidates import select_candidates
from aquifer_manager.domain.ports import RolledSegment
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


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


async def test_a_segment_that_holds_the_log_start_is_copied(world: TaskWorld) -> None:
    """DeleteRecords into its middle leaves the lineage without an epoch for what is below (SR-16, SR-25)."""
    log = world.leading()
    world.roll(log, 2)
    log.log_start_offset = log.local_log_start_offset = 50
    log.epochs = (LeaderEpochEntry(0, 50), LeaderEpochEntry(2, 80))
    await world.copy()
    assert await world.finished() == [(0, 99), (100, 199)]
    found = await world.metadata.remote_log_segment_metadata(TIP, 0, 60)
    assert found is not None
    assert dict(found.segment_leader_epochs) == {0: 0, 2: 80}
    world.announce(0, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    await world.expire()
    assert await world.listed() == []
    assert log.log_start_offset == 200


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
