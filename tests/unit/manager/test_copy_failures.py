"""Copies that fail at any step, or whose answers get lost (SR-16, T16)."""

import asyncio
from collections.abc import Callable

import pytest
from aquifer_core.errors import (
    AquiferError,
    CorruptRecordError,
    DeadlineExceededError,
    InvalidStateTransitionError,
    RemoteStorageUnavailableError,
)
from aquifer_core.segment import (
    CopyResult,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, SimulatedLog

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def to_state(state: RemoteLogSegmentState) -> Callable[..., bool]:
    def matches(update: RemoteLogSegmentMetadataUpdate, **_: object) -> bool:
        return update.state is state

    return matches


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
