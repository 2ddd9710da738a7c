"""Why a segment is still local, not yet deleted or unreadable: each answer from a state that is really so."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from aquifer.manager.v1 import remote_log_manager_service_pb2 as pb
from aquifer_core.errors import (
    CorruptSegmentError,
    ErrorReason,
    RemoteResourceNotFoundError,
    RemoteStorageUnavailableError,
    UnavailableError,
)
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why_reasons import Explanation, WhyQuestion, WhyReason
from fixtures.manager_tasks import ABANDONED_AFTER_MS, TIP, TaskWorld
from fixtures.manager_world import START_MS, Fault, Killed, SimulatedLog

LOCAL, REMOTE, READ = WhyQuestion.STILL_LOCAL, WhyQuestion.NOT_DELETED, WhyQuestion.UNREADABLE
COPY, EXPIRATION = TaskKey(TIP, TaskType.COPY), TaskKey(TIP, TaskType.EXPIRATION)


async def why(world: TaskWorld, question: WhyQuestion, offset: int) -> list[Explanation]:
    answers = await world.explainer().explain_offset(TIP, offset)
    return [each for each in answers if each.question is question]


async def reason(world: TaskWorld, question: WhyQuestion, offset: int) -> WhyReason:
    [answer] = await why(world, question, offset)
    assert answer.text
    return answer.reason


def rolled(world: TaskWorld, count: int = 3, **config: Any) -> SimulatedLog:
    log = world.leading(config=TopicConfig(**config))
    world.roll(log, count)
    log.local_bytes = sum(segment.size_bytes for segment in log.segments)
    return log


def test_the_contract_has_the_same_answers() -> None:
    names = {name.removeprefix("WHY_REASON_") for name, _ in pb.WhyReason.items()} - {"UNSPECIFIED"}
    assert names == {each.value for each in WhyReason}
    questions = {name: value for name, value in pb.WhyQuestion.items() if value}
    assert questions == {f"WHY_QUESTION_{each.name}": each.value for each in WhyQuestion}


async def test_only_rolled_and_stable_segments_are_copied(world: TaskWorld) -> None:
    log = rolled(world)
    log.log_end_offset += 5
    log.last_stable_offset = 250
    assert await reason(world, LOCAL, 302) is WhyReason.ACTIVE_SEGMENT
    assert await reason(world, LOCAL, 210) is WhyReason.NOT_STABLE
    [answer] = await why(world, LOCAL, 210)
    assert (answer.start_offset, answer.end_offset) == (200, 299)
    log.log_start_offset = 100
    assert await reason(world, LOCAL, 10) is WhyReason.BELOW_LOG_START


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"remote_storage_enable": False}, WhyReason.TIERING_DISABLED),
        ({"remote_log_copy_disable": True}, WhyReason.COPY_DISABLED),
    ],
)
async def test_a_topic_may_not_be_copied(
    world: TaskWorld, config: dict[str, bool], expected: WhyReason
) -> None:
    rolled(world, **config)
    assert await reason(world, LOCAL, 10) is expected


async def test_a_copy_waits_for_its_turn(world: TaskWorld) -> None:
    rolled(world)
    assert await reason(world, LOCAL, 10) is WhyReason.LEADER_UNKNOWN
    world.scheduler.add(COPY)
    assert await reason(world, LOCAL, 10) is WhyReason.WAITING_FOR_COPY_SLOT
    assert await reason(world, LOCAL, 110) is WhyReason.BEHIND_OLDER_SEGMENTS
    await world.pauses.pause([TIP])
    assert await reason(world, LOCAL, 10) is WhyReason.PAUSED
    world.registry.require(TIP).work.fenced = True
    assert await reason(world, LOCAL, 10) is WhyReason.LEADER_FENCED


async def test_a_copy_that_fails_says_since_when_and_how(world: TaskWorld) -> None:
    rolled(world)
    world.broker.faults.inject("copy_segment", Fault(times=100))
    async with world.scheduler:
        world.scheduler.add(COPY)
        with pytest.raises(RemoteStorageUnavailableError):
            await world.scheduler.run_now(COPY)
        await world.pauses.pause([TIP])
    await world.pauses.resume([TIP])
    await world.clock.sleep(60)
    [answer] = await why(world, LOCAL, 10)
    assert answer.reason is WhyReason.STORE_UNREACHABLE
    assert answer.last_error_reason == ErrorReason.OBJECT_STORE_UNAVAILABLE.value
    assert answer.last_error == "injected fault"
    assert answer.for_ms is not None
    assert answer.for_ms >= 60_000


async def test_a_copy_under_way_and_one_that_is_not_confirmed(world: TaskWorld) -> None:
    rolled(world)
    seen: list[WhyReason] = []
    upload = world.broker.upload
    assert upload is not None

    async def watched(metadata: RemoteLogSegmentMetadata) -> Any:
        seen.append(await reason(world, LOCAL, metadata.start_offset))
        seen.append(await reason(world, REMOTE, metadata.start_offset))
        return await upload(metadata)

    world.broker.upload = watched
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    world.faults.inject(
        "update_remote_log_segment_metadata",
        Fault(times=100, when=lambda update, **_: update.state is finished),
    )
    with pytest.raises(RemoteStorageUnavailableError):
        await world.copy()
    assert set(seen) == {WhyReason.COPYING}
    assert await reason(world, LOCAL, 10) is WhyReason.COPY_UNCONFIRMED


@pytest.mark.parametrize("trouble", ["metadata is down", "paused"])
async def test_a_copy_under_way_is_seen_whatever_else_is_so(world: TaskWorld, trouble: str) -> None:
    rolled(world)
    world.scheduler.add(COPY)
    seen: list[WhyReason] = []
    upload, listing = world.broker.upload, world.metadata.list_remote_log_segments
    assert upload is not None

    async def down(*_: object) -> Any:
        raise RemoteStorageUnavailableError("down")
        yield

    async def watched(metadata: RemoteLogSegmentMetadata) -> Any:
        if trouble == "paused":
            await world.pauses.pause([TIP])
        else:
            world.metadata.list_remote_log_segments = down  # type: ignore[method-assign]
        seen.append(await reason(world, LOCAL, metadata.start_offset))
        world.metadata.list_remote_log_segments = listing  # type: ignore[method-assign]
        return await upload(metadata)

    world.broker.upload = watched
    await world.copy()
    assert set(seen) == {WhyReason.COPYING}


async def test_what_is_remote_is_kept_by_local_retention(world: TaskWorld) -> None:
    log = rolled(world, local_retention_ms=1000, local_retention_bytes=-1)
    await world.copy()
    log.highest_remote_offset = -1
    assert await reason(world, LOCAL, 10) is WhyReason.BROKER_NOT_TOLD
    log.highest_remote_offset = 299
    log.segments = [replace(each, max_timestamp_ms=world.clock.now_ms()) for each in log.segments]
    assert await reason(world, LOCAL, 10) is WhyReason.LOCAL_RETENTION_NOT_REACHED
    await world.clock.sleep(60)
    assert await reason(world, LOCAL, 10) is WhyReason.LOCAL_RETENTION_DUE

    size = log.segments[0].size_bytes
    world.announce(0, TopicConfig(local_retention_bytes=size, local_retention_ms=-1))
    assert await reason(world, LOCAL, 10) is WhyReason.LOCAL_RETENTION_DUE
    assert await reason(world, LOCAL, 210) is WhyReason.LOCAL_RETENTION_NOT_REACHED


async def test_a_leader_that_is_not_there(world: TaskWorld) -> None:
    for question in (LOCAL, READ):
        assert await reason(world, question, 10) is WhyReason.LEADER_UNKNOWN
    log = rolled(world)
    world.broker.faults.inject("describe_logs", Fault(error=UnavailableError("gone"), times=2))
    for question in (LOCAL, READ):
        [answer] = await why(world, question, 10)
        assert answer.reason is WhyReason.BROKER_UNREACHABLE
        assert "gone" in answer.text
    log.leader_epoch = 7
    assert await reason(world, LOCAL, 10) is WhyReason.LEADERSHIP_MOVED


async def test_retention_that_has_not_been_reached(world: TaskWorld) -> None:
    """SR-10."""
    rolled(world)
    await world.copy()
    assert await reason(world, REMOTE, 10) is WhyReason.RETENTION_UNLIMITED
    world.announce(0, TopicConfig(retention_ms=10**9))
    assert await reason(world, REMOTE, 10) is WhyReason.RETENTION_NOT_REACHED
    world.announce(0, TopicConfig(retention_ms=0))
    [answer] = await why(world, REMOTE, 10)
    assert answer.reason is WhyReason.DELETION_DUE
    assert "RETENTION_TIME" in answer.text
    await world.pauses.pause([TIP])
    assert await reason(world, REMOTE, 10) is WhyReason.PAUSED
    world.registry.require(TIP).work.in_progress.add(
        (await world.metadata.remote_log_segment_metadata(TIP, 0, 10)).segment_id.id  # type: ignore[union-attr]
    )
    world.announce(0, TopicConfig(retention_ms=10**9))
    assert await reason(world, REMOTE, 110) is WhyReason.BEHIND_COPY_IN_PROGRESS


async def test_retention_stops_at_an_older_segment_that_stays(world: TaskWorld) -> None:
    """A producer's clock was in the future once: whoever waits for what came later is told so (SR-10)."""
    log = world.leading(config=TopicConfig(retention_ms=1000))
    world.roll(log, 1, timestamp_ms=START_MS + 10**9)
    world.roll(log, 2)
    await world.copy()
    await world.clock.sleep(60)
    assert (await world.expire()).actions == ()
    [future] = await why(world, REMOTE, 10)
    assert future.reason is WhyReason.RETENTION_NOT_REACHED
    assert f"{10**9 - 60_000} ms in the future" in future.text
    [behind] = await why(world, REMOTE, 110)
    assert behind.reason is WhyReason.BEHIND_OLDER_SEGMENTS
    assert "offset 0 " in behind.text


async def test_an_unknown_newest_record_is_not_decades_old(world: TaskWorld) -> None:
    log = world.leading(config=TopicConfig(retention_ms=10**6))
    world.roll(log, 1, timestamp_ms=-1)
    await world.copy()
    await world.clock.sleep(60)
    [answer] = await why(world, REMOTE, 10)
    assert answer.reason is WhyReason.RETENTION_NOT_REACHED
    assert " 60000 ms" in answer.text


async def test_what_a_plan_has_no_room_for_is_due_as_well(world: TaskWorld) -> None:
    """Metadata names the first few thousand of a large backlog."""
    rolled(world, retention_ms=0)
    await world.copy()
    await world.clock.sleep(1)
    plan = world.metadata.list_retention_candidates

    async def first(*args: Any) -> Any:
        whole = await plan(*args)
        return replace(whole, candidates=whole.candidates[:1])

    world.metadata.list_retention_candidates = first  # type: ignore[method-assign]
    assert [await reason(world, REMOTE, offset) for offset in (10, 210)] == [
        WhyReason.DELETION_DUE
    ] * 2


async def test_a_topic_that_is_no_longer_tiered_loses_what_is_remote(world: TaskWorld) -> None:
    """K-3.12: it may be another manager that does it."""
    rolled(world, retention_ms=0)
    await world.copy()
    await world.clock.sleep(1)
    world.announce(0, TopicConfig(remote_storage_enable=False, retention_ms=0))
    assert await reason(world, REMOTE, 10) is WhyReason.PARTITION_DELETION


@pytest.mark.parametrize("state", ["deletion begun", "copy abandoned"])
async def test_what_only_a_run_can_end_says_what_keeps_runs_from_coming(
    world: TaskWorld, state: str
) -> None:
    rolled(world, retention_ms=0)
    if state == "deletion begun":
        await world.copy()
        world.storage.fail("delete_log_segment_data", *[RemoteStorageUnavailableError("odd")] * 3)
    else:
        world.broker.faults.inject("copy_segment", Fault(error=Killed(), times=10))
    with suppress(BaseExceptionGroup, Killed, RemoteStorageUnavailableError):
        await (world.expire() if state == "deletion begun" else world.copy())
    await world.clock.sleep(ABANDONED_AFTER_MS / 1000 + 1)
    world.restart()
    world.leading()
    assert await reason(world, REMOTE, 10) in (WhyReason.DELETION_PENDING, WhyReason.DELETION_DUE)
    await world.pauses.pause([TIP])
    assert await reason(world, REMOTE, 10) is WhyReason.PAUSED
    await world.pauses.resume([TIP])
    world.registry.stop(1, [TIP])
    assert await reason(world, REMOTE, 10) is WhyReason.LEADER_UNKNOWN


async def test_a_deletion_that_fails(world: TaskWorld) -> None:
    """SR-35."""
    rolled(world, retention_ms=0)
    await world.copy()
    world.storage.fail("delete_log_segment_data", *[RemoteResourceNotFoundError("odd")] * 3)
    with pytest.raises(RemoteResourceNotFoundError):
        await world.expire()
    await world.clock.sleep(30)
    [answer] = await why(world, REMOTE, 10)
    assert answer.reason is WhyReason.DELETION_FAILING
    assert answer.for_ms is not None
    assert answer.for_ms >= 30_000
    assert answer.last_error_reason == ErrorReason.SEGMENT_NOT_FOUND.value
    world.restart()
    world.leading()
    assert await reason(world, REMOTE, 10) is WhyReason.DELETION_PENDING


async def test_a_copy_that_nobody_works_on_goes_by_its_age(world: TaskWorld) -> None:
    log = rolled(world)
    dangling = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate(TIP),
        start_offset=0,
        end_offset=99,
        broker_id=9,
        max_timestamp_ms=START_MS,
        event_timestamp_ms=world.clock.now_ms(),
        segment_size_bytes=1,
        segment_leader_epochs={0: 0},
    )
    await world.metadata.add_remote_log_segment_metadata(dangling)
    assert await reason(world, REMOTE, 10) is WhyReason.COPY_DANGLING_YOUNG
    log.local_log_start_offset = 100
    assert await reason(world, READ, 10) is WhyReason.COPY_NOT_FINISHED
    await world.clock.sleep(ABANDONED_AFTER_MS / 1000 + 1)
    assert await reason(world, REMOTE, 10) is WhyReason.DELETION_DUE


async def test_a_partition_that_is_being_deleted(world: TaskWorld) -> None:
    rolled(world)
    await world.copy()
    world.scheduler.add(TaskKey(TIP, TaskType.PARTITION_DELETION))
    assert await reason(world, REMOTE, 10) is WhyReason.PARTITION_DELETION


async def test_reading_is_tried_out(world: TaskWorld) -> None:
    """SR-19."""
    log = rolled(world)
    await world.copy()
    assert await reason(world, READ, 10) is WhyReason.READ_LOCALLY
    assert await reason(world, READ, 300) is WhyReason.ABOVE_LOG_END
    log.local_log_start_offset = 300
    assert await reason(world, READ, 10) is WhyReason.READABLE

    segment = await world.metadata.remote_log_segment_metadata(TIP, 0, 10)
    assert segment is not None
    for error, expected in (
        (RemoteStorageUnavailableError("down"), WhyReason.STORE_UNREACHABLE),
        (CorruptSegmentError("bad"), WhyReason.OBJECTS_CORRUPT),
        (
            RemoteStorageUnavailableError("no key", reason=ErrorReason.ENCRYPTION_KEY_UNAVAILABLE),
            WhyReason.ENCRYPTION_KEY_UNAVAILABLE,
        ),
    ):
        world.storage.fail("fetch_records", error)
        assert await reason(world, READ, 10) is expected
    await world.storage.delete_log_segment_data(segment)
    assert await reason(world, READ, 10) is WhyReason.OBJECTS_MISSING

    log.epochs = (LeaderEpochEntry(3, 0),)
    assert await reason(world, READ, 10) is WhyReason.NOT_IN_LINEAGE
    log.epochs = (LeaderEpochEntry(3, 50),)
    assert await reason(world, READ, 10) is WhyReason.NO_LEADER_EPOCH
    log.log_start_offset = 100
    assert await reason(world, READ, 10) is WhyReason.BELOW_LOG_START


async def test_a_hole_and_a_segment_that_goes_are_told_apart(world: TaskWorld) -> None:
    log = rolled(world, retention_ms=0)
    await world.copy()
    world.storage.fail("delete_log_segment_data", *[RemoteStorageUnavailableError("down")] * 9)
    with pytest.raises(RemoteStorageUnavailableError):
        await world.expire()
    log.log_start_offset = 0
    log.local_log_start_offset = 300
    assert await reason(world, READ, 10) is WhyReason.BEING_DELETED
    world.storage.failures.clear()
    await world.expire()
    log.log_start_offset = 0
    assert await reason(world, READ, 10) is WhyReason.NO_SEGMENT


async def test_a_segment_is_explained_by_its_id(world: TaskWorld) -> None:
    log = rolled(world)
    await world.copy()
    log.segments, log.local_log_start_offset = log.segments[1:], 100
    segment = await world.metadata.remote_log_segment_metadata(TIP, 0, 10)
    assert segment is not None
    answers = await world.explainer().explain_segment(TIP, segment.segment_id.id)
    assert [(each.question, each.reason) for each in answers] == [
        (REMOTE, WhyReason.RETENTION_UNLIMITED),
        (READ, WhyReason.READABLE),
    ]
    with pytest.raises(RemoteResourceNotFoundError):
        await world.explainer().explain_segment(TIP, KafkaUuid.random())


async def test_a_partition_is_explained_by_what_is_most_overdue(world: TaskWorld) -> None:
    log = rolled(world)
    world.scheduler.add(COPY)
    answers = await world.explainer().explain_partition(TIP)
    assert [(each.question, each.reason) for each in answers] == [
        (LOCAL, WhyReason.WAITING_FOR_COPY_SLOT)
    ]
    await world.copy()
    world.roll(log, 1)
    log.local_log_start_offset, log.segments = 200, log.segments[2:]
    answers = await world.explainer().explain_partition(TIP)
    assert [(each.question, each.start_offset) for each in answers] == [
        (LOCAL, 200),
        (LOCAL, 300),
        (REMOTE, 0),
        (READ, 0),
    ]
