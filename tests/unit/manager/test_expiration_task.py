"""The expiration task (SR-10, SR-11, SR-17, K-3.3, K-3.4)."""

from contextlib import suppress

import pytest
from aquifer_core.errors import (
    ErrorReason,
    PreconditionError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import (
    RetentionOverrides,
    TopicConfig,
    effective_retention,
)
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import START_MS, Fault, SimulatedLog

KEY = TaskKey(TIP, TaskType.EXPIRATION)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("config", "overrides", "expected"),
    [
        (TopicConfig(retention_ms=7, retention_bytes=8), RetentionOverrides(), (7, 8)),
        (
            TopicConfig(retention_ms=7, retention_bytes=8),
            RetentionOverrides(minutes=2, size_bytes=3),
            (120_000, 3),
        ),
        (
            TopicConfig(
                retention_ms=7,
                remote_log_retention_minutes=1,
                remote_log_retention_bytes=9,
            ),
            RetentionOverrides(minutes=2, size_bytes=3),
            (60_000, 9),
        ),
    ],
)
def test_the_most_specific_retention_rules(
    config: TopicConfig, overrides: RetentionOverrides, expected: tuple[int, int]
) -> None:
    """SR-10, SR-11: the topic's remote override, else the manager's, else the topic's total retention."""
    found = effective_retention(config, overrides)
    assert (found.retention_ms, found.retention_bytes) == expected


async def copied(world: TaskWorld, count: int, config: TopicConfig) -> SimulatedLog:
    log = world.leading(config=config)
    world.roll(log, count)
    while (await world.copy()).more_work:
        pass
    return log


@pytest.mark.parametrize("expired", [0, 1, 23, 50])
async def test_size_retention_deletes_exactly_the_oldest_in_excess(
    world: TaskWorld, expired: int
) -> None:
    """SR-11, K-3.4 vector: retention.bytes = (50 - k) segments + local-only size -> exactly k oldest go."""
    log = await copied(world, 50, TopicConfig())
    size_bytes = log.segments[0].size_bytes
    log.local_only_bytes = 512
    config = TopicConfig(retention_bytes=(50 - expired) * size_bytes + 512)
    world.announce(0, config)
    outcome = await world.expire()
    assert [a.segment.start_offset for a in outcome.actions] == [n * 100 for n in range(expired)]
    assert log.log_start_offset == expired * 100
    assert len(await world.finished()) == 50 - expired
    assert await world.nothing_dangles()


@pytest.mark.parametrize("config", [TopicConfig(retention_ms=0), TopicConfig(retention_bytes=0)])
async def test_zero_retention_deletes_everything_remote_and_raises_the_log_start(
    world: TaskWorld, config: TopicConfig
) -> None:
    """K-3.4 vector: 2 segments of 100 records -> both deleted, log start 200."""
    log = await copied(world, 2, config)
    await world.clock.sleep(1)
    outcome = await world.expire()
    reason = "RETENTION_TIME" if config.retention_ms == 0 else "RETENTION_SIZE"
    assert [a.reason for a in outcome.actions] == [reason, reason]
    assert log.log_start_offset == 200
    assert await world.metadata.earliest_log_offset(TIP) == 200
    assert await world.listed() == []


async def test_time_retention_goes_by_the_newest_record(world: TaskWorld) -> None:
    log = world.leading(config=TopicConfig(retention_ms=HOUR_MS))
    world.roll(log, 1, timestamp_ms=START_MS - 2 * HOUR_MS)
    world.roll(log, 1, timestamp_ms=START_MS)
    await world.copy()
    await world.expire()
    assert await world.finished() == [(100, 199)]


async def test_overlapping_copies_are_both_deleted(world: TaskWorld) -> None:
    """K-3.4 vector: 0-99 and 0-104 -> both deleted, log start 105."""
    for end in (99, 104):
        await put(
            Segment(tip=TIP, batches=[batch(0), batch(end)], epochs={0: 0}),
            world.storage,
            world.metadata,
        )
    log = world.leading(config=TopicConfig(retention_ms=0))
    log.log_end_offset = log.last_stable_offset = 200
    log.local_log_start_offset = 105
    await world.clock.sleep(60)
    assert len((await world.expire()).actions) == 2
    assert log.log_start_offset == 105


async def test_the_log_start_is_raised_before_anything_is_deleted(world: TaskWorld) -> None:
    """K-3.4: readers are not sent to segments that are about to go."""
    log = await copied(world, 2, TopicConfig(retention_ms=0))
    seen: list[int] = []

    def note(*_: object, **__: object) -> bool:
        seen.append(log.log_start_offset)
        return False

    world.faults.inject("delete_log_segment_data", Fault(when=note))
    await world.clock.sleep(1)
    await world.expire()
    assert seen == [200, 200]


async def test_segments_below_a_raised_log_start_are_deleted(world: TaskWorld) -> None:
    """SR-25: DeleteRecords raised the log start; a segment that holds the new start stays."""
    log = await copied(world, 3, TopicConfig())
    log.log_start_offset = log.local_log_start_offset = 150
    outcome = await world.expire()
    assert [(a.segment.start_offset, a.reason) for a in outcome.actions] == [
        (0, "LOG_START_OFFSET_BREACH")
    ]
    assert await world.metadata.earliest_log_offset(TIP) == 150


async def test_segments_whose_epochs_left_the_lineage_are_deleted(world: TaskWorld) -> None:
    """T11: KAFKA-16511."""
    await copied(world, 2, TopicConfig())
    log = world.leading(epoch=4)
    log.epochs = (LeaderEpochEntry(4, 200),)
    log.log_start_offset = log.local_log_start_offset = 200
    log.log_end_offset = log.last_stable_offset = 250
    outcome = await world.expire()
    assert {a.reason for a in outcome.actions} <= {"NOT_IN_LINEAGE", "LOG_START_OFFSET_BREACH"}
    assert await world.listed() == []


async def test_failed_copies_do_not_count_for_size_retention(world: TaskWorld) -> None:
    """T08: KAFKA-17062."""
    log = await copied(world, 2, TopicConfig())
    size_bytes = log.segments[0].size_bytes
    for _ in range(3):
        started = Segment(tip=TIP, batches=[batch(200), batch(299)]).metadata()
        await world.metadata.add_remote_log_segment_metadata(started)
    world.announce(0, TopicConfig(retention_bytes=2 * size_bytes))
    assert (await world.expire()).actions == ()


async def test_a_segment_that_cannot_be_deleted_does_not_hold_up_the_others(
    world: TaskWorld,
) -> None:
    """SR-35, T10: it stays DELETE_SEGMENT_STARTED and the next run deletes it."""
    await copied(world, 3, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)

    def first(metadata: RemoteLogSegmentMetadata) -> bool:
        return metadata.start_offset == 0

    world.faults.inject("delete_log_segment_data", Fault(when=first))
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    assert await world.listed() == [(0, 99, "DELETE_SEGMENT_STARTED")]
    outcome = await world.expire()
    assert [a.reason for a in outcome.actions] == ["DELETE_UNFINISHED"]
    assert await world.nothing_dangles()


@pytest.mark.parametrize("partition_deleted", [False, True])
async def test_segments_that_cannot_be_deleted_starve_no_others_however_many_they_are(
    world: TaskWorld, partition_deleted: bool
) -> None:
    """SR-35: more of them than a run deletes."""
    world.deletions_per_run = 4
    world.restart()
    await copied(world, 12, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    run = world.expire
    if partition_deleted:
        await world.deletions.begin(1, [TIP])
        run = world.delete_partition
    stuck = Fault(times=10**6, when=lambda metadata: metadata.start_offset < 600)
    world.faults.inject("delete_log_segment_data", stuck)

    for _ in range(12):
        await world.clock.sleep(1)
        with suppress(RemoteStorageUnavailableError):
            await run()
    assert [start for start, _, _ in await world.listed()] == [0, 100, 200, 300, 400, 500]
    attempts = [each.attempts for each in world.failures.failing()]
    assert len(attempts) == 6
    assert min(attempts) >= 3, "all are tried in turn"

    stuck.times = 0
    for _ in range(2):
        await run()
    assert await world.nothing_dangles()


async def test_a_backlog_does_not_wait_for_the_back_off_of_one_segment_that_cannot_be_deleted(
    world: TaskWorld,
) -> None:
    world.deletions_per_run = 4
    world.restart()
    await copied(world, 12, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    world.faults.inject(
        "delete_log_segment_data",
        Fault(times=10**6, when=lambda metadata: metadata.start_offset == 0),
    )
    outcomes = [await world.expire() for _ in range(3)]
    assert [outcome.more_work for outcome in outcomes] == [True, True, True]
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    assert [start for start, _, _ in await world.listed()] == [0]


@pytest.mark.parametrize(
    "state",
    [
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
    ],
)
@pytest.mark.parametrize("after", [False, True])
async def test_a_deletion_interrupted_at_any_step_is_ended_by_the_next_run(
    world: TaskWorld, state: RemoteLogSegmentState, after: bool
) -> None:
    await copied(world, 2, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(after=after, when=lambda update, **_: update.state is state),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    await world.expire()
    assert await world.listed() == []
    assert world.storage.segment_ids == frozenset()


async def test_a_log_start_that_cannot_be_recorded_defers_the_deletion(world: TaskWorld) -> None:
    await copied(world, 2, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    world.faults.inject(
        "update_earliest_log_offset", Fault(when=lambda tip, offset, epoch: offset == 200)
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    assert len(await world.finished()) == 2


async def test_copies_under_way_are_left_alone(world: TaskWorld) -> None:
    """K-3.4: a segment being copied now ends the deletion."""
    log = await copied(world, 1, TopicConfig(retention_ms=0))
    world.roll(log, 1)
    await world.clock.sleep(7 * 3600)
    seen: list[tuple[int, int, str]] = []

    async def expiring_meanwhile(metadata: RemoteLogSegmentMetadata) -> object:
        await world.expire()
        seen.extend(await world.listed())
        return await world.upload(metadata)

    world.broker.upload = expiring_meanwhile  # type: ignore[assignment]
    await world.copy()
    assert seen == [(100, 199, "COPY_SEGMENT_STARTED")]
    assert await world.finished() == [(100, 199)]


async def test_a_dry_run_says_what_would_go_and_changes_nothing(world: TaskWorld) -> None:
    log = await copied(world, 2, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    outcome = await world.expiration_task.dry_run(KEY)
    assert [(a.segment.start_offset, a.reason) for a in outcome.actions] == [
        (0, "RETENTION_TIME"),
        (100, "RETENTION_TIME"),
    ]
    assert len(await world.finished()) == 2
    assert log.log_start_offset == 0


async def test_a_replaced_leader_deletes_nothing(world: TaskWorld) -> None:
    await copied(world, 2, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    await world.metadata.on_partition_leadership_changes({TIP: 9}, [])
    with pytest.raises(StaleLeaderEpochError):
        await world.expire()
    assert len(await world.finished()) == 2
    with pytest.raises(StaleLeaderEpochError, match="waiting for the leader"):
        await world.expire()


async def test_offsets_that_contradict_each_other_defer_the_deletion(world: TaskWorld) -> None:
    """SR-20."""
    log = await copied(world, 2, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    log.local_log_start_offset = 10_000
    with pytest.raises(PreconditionError) as raised:
        await world.expire()
    assert raised.value.reason is ErrorReason.OFFSET_CONSTRAINT
    assert len(await world.finished()) == 2


async def test_the_managers_retention_overrides_that_of_topics(world: TaskWorld) -> None:
    """SR-10: `remote.log.retention.minutes`."""
    world.overrides = RetentionOverrides(minutes=1)
    world.restart()
    await copied(world, 1, TopicConfig(retention_ms=-1))
    await world.expire()
    assert len(await world.finished()) == 1
    await world.clock.sleep(61)
    await world.expire()
    assert await world.finished() == []
