"""Several segments of one partition on their way at once, committed in offset order (SR-16, SR-22)."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from aquifer_core.errors import (
    AquiferError,
    CorruptRecordError,
    InvalidStateTransitionError,
    RemoteStorageUnavailableError,
    StaleLeaderEpochError,
)
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadataUpdate
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.tasks import Deferral, TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why_reasons import WhyQuestion, WhyReason
from fixtures.gated_uploads import GatedUploads
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, SimulatedLog, partition, settle
from fixtures.polling import eventually

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def rolled(world: TaskWorld, count: int) -> SimulatedLog:
    log = world.leading()
    world.roll(log, count)
    return log


def copying(world: TaskWorld) -> asyncio.Task[TaskOutcome]:
    return asyncio.create_task(world.copy())


async def committed(world: TaskWorld, *starts: int) -> None:
    """Waits until metadata has exactly these segments finished."""

    async def are_finished() -> bool:
        return [start for start, _ in await world.finished()] == list(starts)

    await eventually(are_finished, timeout_s=30)


def of_segment(start_offset: int, world: TaskWorld) -> Callable[..., bool]:
    """The commit of the copy that begins there."""

    def matches(update: RemoteLogSegmentMetadataUpdate, **_: object) -> bool:
        starts = {each.segment_id: each.start_offset for each in world.broker.uploads}
        return update.state is FINISHED and starts[update.segment_id] == start_offset

    return matches


async def test_uploads_overlap_and_commits_follow_the_order_of_offsets(world: TaskWorld) -> None:
    """SR-16: whatever ends first, what metadata has finished and what the broker is told has no hole."""
    log, uploads = rolled(world, 6), GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(200, 100)
    await uploads.until(0, 300, 400)
    await settle()
    assert await world.finished() == []
    assert log.highest_remote_offset == -1
    assert world.registry.require(TIP).work.copied_offset == -1
    assert len(world.storage.segment_ids) == 2
    await uploads.end(0)
    await committed(world, 0, 100, 200)
    await uploads.until(300, 400, 500)
    await uploads.end(500, 400, 300)
    outcome = await run
    assert [each.segment.start_offset for each in outcome.actions] == [0, 100, 200, 300, 400, 500]
    assert uploads.most == 3
    assert log.highest_remote_offset == 599
    assert await world.nothing_dangles()


async def test_what_waits_for_an_older_copy_is_bounded(world: TaskWorld) -> None:
    """One upload that does not end keeps no more than twice as many segments from being committed."""
    rolled(world, 12)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    for newer in (100, 200, 300, 400, 500):
        await eventually(lambda newer=newer: newer in uploads.under_way, timeout_s=30)  # type: ignore[misc]
        await uploads.end(newer)
    await uploads.until(0)
    await settle()
    assert uploads.begun == [0, 100, 200, 300, 400, 500]
    await uploads.end(0)
    await uploads.until(600, 700, 800)
    await uploads.end(600, 700, 800)
    await uploads.until(900, 1000, 1100)
    await uploads.end(900, 1000, 1100)
    assert len((await run).actions) == 12


async def test_a_copy_that_fails_takes_those_behind_it_back_and_not_those_before(
    world: TaskWorld,
) -> None:
    """What is older is committed, what is newer is never seen; the next run tries one before it takes several again."""
    log, uploads = rolled(world, 7), GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(200)
    await uploads.until(0, 100, 300)
    await uploads.fail(100, CorruptRecordError("bad batch"))
    await uploads.end(300)
    await settle()
    assert uploads.begun == [0, 100, 200, 300], "no other copy begins"
    assert await world.finished() == []
    await uploads.end(0)
    with pytest.raises(CorruptRecordError):
        await run
    assert await world.listed() == [(0, 99, "COPY_SEGMENT_FINISHED")]
    assert await world.nothing_dangles()
    assert log.highest_remote_offset == 99
    again = copying(world)
    await uploads.until(100)
    await settle()
    assert uploads.under_way == [100]
    await uploads.end(100)
    await uploads.until(200, 300, 400)
    await uploads.end(200, 300, 400)
    await uploads.until(500, 600)
    await uploads.end(500, 600)
    assert len((await again).actions) == 6
    assert await world.nothing_dangles()


async def test_the_oldest_failure_is_what_the_run_failed_with(world: TaskWorld) -> None:
    rolled(world, 3)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.fail(200, RemoteStorageUnavailableError("newest"))
    await uploads.fail(0, CorruptRecordError("oldest"))
    await uploads.end(100)
    with pytest.raises(CorruptRecordError, match="oldest"):
        await run
    assert await world.finished() == []
    assert world.storage.segment_ids == frozenset()


@pytest.mark.parametrize("after", [False, True], ids=["lost", "only its answer lost"])
async def test_what_is_stored_behind_a_commit_of_unknown_end_is_kept_for_the_next_run(
    world: TaskWorld, after: bool
) -> None:
    """An outage of metadata costs no upload twice."""
    log = rolled(world, 3)
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(times=1000, after=after, when=of_segment(0, world)),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    assert [start for start, _ in await world.finished()] == ([0] if after else [])
    assert log.highest_remote_offset == -1
    await world.expire()
    assert len(world.storage.segment_ids) == 3
    world.faults.by_method.clear()
    await world.copy()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
    assert len(world.broker.uploads) == 3
    assert log.highest_remote_offset == 299
    assert await world.nothing_dangles()


async def test_what_was_kept_goes_when_the_copy_before_it_is_refused_for_good(
    world: TaskWorld,
) -> None:
    """Otherwise the next run would commit behind a hole."""
    rolled(world, 3)
    fault = Fault(times=1000, when=of_segment(0, world))
    world.faults.inject("update_remote_log_segment_metadata", fault)
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    fault.error = InvalidStateTransitionError("reaped")
    with pytest.raises(InvalidStateTransitionError):
        await world.copy()
    assert await world.finished() == []
    world.faults.by_method.clear()
    await world.copy()
    await world.expire()
    assert await world.finished() == [(0, 99), (100, 199), (200, 299)]
    assert len(world.broker.uploads) == 6
    assert await world.nothing_dangles()


async def test_a_fence_between_two_commits_leaves_the_first_and_nothing_behind_it(
    world: TaskWorld,
) -> None:
    """SR-22: what is committed before the new leader's epoch is known counts, the rest is taken back."""
    log, uploads = rolled(world, 4), GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(0)
    await committed(world, 0)
    await uploads.until(100, 200, 300)
    await world.metadata.on_partition_leadership_changes({TIP: 5}, [])
    await uploads.end(300, 200, 100)
    with pytest.raises(StaleLeaderEpochError):
        await run
    assert await world.listed() == [(0, 99, "COPY_SEGMENT_FINISHED")]
    assert await world.nothing_dangles()
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(6, 400))
    world.leading(epoch=6)
    again = copying(world)
    await uploads.until(100)
    await uploads.end(100)
    await uploads.until(200, 300)
    await uploads.end(300, 200)
    await again
    assert [start for start, _ in await world.finished()] == [0, 100, 200, 300]


async def test_records_deleted_under_the_copies_are_deleted_remotely_afterwards(
    world: TaskWorld,
) -> None:
    """SR-25: the log start moves past what is on its way; the copies end in order, and the expiration removes them."""
    log, uploads = rolled(world, 4), GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    log.log_start_offset = log.local_log_start_offset = 250
    assert (await world.expire()).actions == ()
    await uploads.end(200, 100, 0)
    await uploads.until(300)
    await uploads.end(300)
    await run
    await world.expire()
    assert await world.finished() == [(200, 299), (300, 399)]
    assert await world.nothing_dangles()


async def test_retention_stops_at_the_oldest_copy_that_is_under_way(world: TaskWorld) -> None:
    """K-3.4: also when newer ones are stored already."""
    log, uploads = rolled(world, 3), GatedUploads(world.broker)
    world.announce(0, TopicConfig(retention_ms=0))
    await world.clock.sleep(1)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(200, 100)
    await settle()
    assert (await world.expire()).actions == ()
    assert log.log_start_offset == 0
    await uploads.end(0)
    await run
    await world.expire()
    assert await world.finished() == []
    assert log.log_start_offset == 300


async def test_a_run_cancelled_with_copies_in_every_state_leaves_them_to_the_next(
    world: TaskWorld,
) -> None:
    """A stop, or the run's deadline, finds one committed, one stored and two uploading."""
    rolled(world, 6)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(0, 200)
    await committed(world, 0)
    await uploads.until(100, 300, 400)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await uploads.until()
    states = {start: state for start, _, state in await world.listed()}
    assert states.pop(0) == "COPY_SEGMENT_FINISHED"
    assert states == dict.fromkeys([100, 200, 300, 400], "COPY_SEGMENT_STARTED")
    again = copying(world)
    await uploads.until(100, 200, 300)
    await uploads.end(100, 200, 300)
    await uploads.until(400, 500)
    await uploads.end(400, 500)
    await again
    await world.expire()
    assert [start for start, _ in await world.finished()] == [0, 100, 200, 300, 400, 500]
    assert await world.nothing_dangles()


async def test_what_a_stopped_manager_had_under_way_is_found_by_the_next_one(
    world: TaskWorld,
) -> None:
    """T16: several dangling copies, stored or not, go when the next manager begins."""
    rolled(world, 4)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(100, 200)
    await uploads.until(0, 300)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    world.restart()
    world.announce(0)
    again = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(0, 100, 200)
    await uploads.until(300)
    await uploads.end(300)
    await again
    await world.expire()
    assert [start for start, _ in await world.finished()] == [0, 100, 200, 300]
    assert await world.nothing_dangles()


async def test_the_quota_is_booked_for_every_copy_and_ends_a_run_with_copies_under_way(
    world: TaskWorld,
) -> None:
    """KIP-956: several at once are no way around it."""
    world.leading()
    world.roll(world.broker.logs[TIP], 4)
    size_bytes = world.broker.logs[TIP].segments[0].size_bytes
    world.copy_bytes_per_second = int(size_bytes * 1.5)
    world.restart()
    world.announce(0)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100)
    await uploads.end(100, 0)
    outcome = await run
    assert [each.segment.start_offset for each in outcome.actions] == [0, 100]
    assert outcome.deferred is Deferral.COPY_QUOTA
    assert outcome.retry_in_s == pytest.approx(0.33, abs=0.05)


async def test_a_run_has_one_upload_as_long_as_its_broker_has_no_place_to_spare(
    world: TaskWorld,
) -> None:
    rolled(world, 6)
    uploads = GatedUploads(world.broker)
    with ExitStack() as places:
        for number in range(10, 17):
            key = TaskKey(partition(number=number), TaskType.COPY)
            assert places.enter_context(world.uploads.run_at("leader", key))
        run = copying(world)
        await uploads.until(0)
        await uploads.end(0)
        await uploads.until(100)
        await settle()
        assert uploads.under_way == [100]
    await uploads.end(100)
    await uploads.until(200, 300, 400)
    assert world.uploads.lent() == -2, "two slots of the lane are used besides the run's own"
    await uploads.end(400, 300, 200)
    await uploads.until(500)
    await uploads.end(500)
    await run
    assert world.uploads.lent() == 0


async def test_why_tells_an_upload_from_a_segment_that_waits_for_an_older_one(
    world: TaskWorld,
) -> None:
    rolled(world, 5)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    await uploads.until(0, 100, 200)
    await uploads.end(100)
    await uploads.until(0, 200, 300)
    await settle()

    async def reason(offset: int) -> WhyReason:
        answers = await world.explainer().explain_offset(TIP, offset)
        [answer] = [each for each in answers if each.question is WhyQuestion.STILL_LOCAL]
        return answer.reason

    assert await reason(10) is WhyReason.COPYING
    assert await reason(110) is WhyReason.BEHIND_OLDER_SEGMENTS
    assert await reason(210) is WhyReason.COPYING
    assert await reason(410) is not WhyReason.COPYING
    await uploads.end(0, 200, 300)
    await uploads.until(400)
    await uploads.end(400)
    await run
    assert world.registry.require(TIP).work.stored == {}


async def test_the_setting_of_one_uploads_one_after_the_other(world: TaskWorld) -> None:
    """The next upload goes on while the last one is committed, and no third one begins."""
    world.segments_at_once = 1
    world.restart()
    rolled(world, 4)
    uploads = GatedUploads(world.broker)
    run = copying(world)
    for start in (0, 100, 200, 300):
        await uploads.until(start)
        await uploads.end(start)
    await run
    assert uploads.most == 1
    assert [start for start, _ in await world.finished()] == [0, 100, 200, 300]


async def test_a_broker_that_is_not_told_ends_the_run_and_what_is_committed_stays(
    world: TaskWorld,
) -> None:
    log = rolled(world, 6)
    world.broker.faults.inject("update_remote_log_offsets", Fault(times=1000))
    with pytest.raises(AquiferError):
        await world.copy()
    finished = await world.finished()
    assert finished == [(start, start + 99) for start in range(0, 100 * len(finished), 100)]
    assert finished
    assert await world.nothing_dangles()
    world.broker.faults.by_method.clear()
    await world.copy()
    assert log.highest_remote_offset == 599
    assert await world.nothing_dangles()
