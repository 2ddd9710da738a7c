"""The scrub compares metadata, listing and content (T17)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aquifer_core.errors import RemoteStorageUnavailableError
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.segment import RemoteLogSegmentMetadata, StoredSegment, VerifyProgress
from aquifer_manager.domain import segment_pages
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_tasks import TIP, TaskWorld

KEY = TaskKey(TIP, TaskType.SCRUB)


def scrubber(world: TaskWorld, grace_ms: int = 60_000) -> ScrubTask:
    return ScrubTask(
        world.storage,
        world.metadata,
        world.healing,
        clock=world.clock,
        telemetry=NoTelemetry(),
        grace_ms=grace_ms,
    )


async def found(world: TaskWorld, *, deep: bool = True) -> list[tuple[str, int]]:
    outcome = await scrubber(world).run(KEY, deep=deep)
    return [(action.action.value, action.segment.start_offset) for action in outcome.actions]


async def three_segments(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    await world.clock.sleep(120)


async def test_what_is_as_it_should_be_is_not_reported(world: TaskWorld) -> None:
    await three_segments(world)
    assert await found(world) == []
    assert await found(world, deep=False) == []


@pytest.mark.parametrize("deep", [True, False])
async def test_a_segment_whose_objects_are_gone_is_missing(world: TaskWorld, deep: bool) -> None:
    await three_segments(world)
    segment = await world.metadata.remote_log_segment_metadata(TIP, 0, 150)
    assert segment is not None
    await world.storage.delete_log_segment_data(segment)
    assert await found(world, deep=deep) == [("missing", 100)]


async def test_damaged_bytes_are_corrupt(world: TaskWorld) -> None:
    await three_segments(world)
    segment = await world.metadata.remote_log_segment_metadata(TIP, 0, 250)
    assert segment is not None
    world.storage.corrupt_log(segment.segment_id, 80)
    assert await found(world) == [("corrupt", 200)]
    assert await found(world, deep=False) == []


async def test_objects_that_metadata_does_not_know_are_extra_once_they_have_an_age(
    world: TaskWorld,
) -> None:
    await three_segments(world)
    stray = Segment(tip=TIP, batches=[batch(900)])
    metadata = stray.metadata()
    await world.storage.copy_log_segment_data(metadata, stray.data())
    assert await found(world) == [("extra", 900)]
    assert (await scrubber(world, grace_ms=3_600_000).run(KEY)).actions == ()


async def test_a_segment_deleted_during_the_scrub_is_no_finding(world: TaskWorld) -> None:
    """No false positive under load."""
    await three_segments(world)

    class Racing(InMemoryRemoteStorageManager):
        """Deletes everything properly just before it is verified."""

        async def verify_segment(self, *args: Any) -> AsyncIterator[VerifyProgress]:
            await world.deletions.begin(1, [TIP])
            await world.delete_partition()
            async for progress in super().verify_segment(*args):
                yield progress

    storage = Racing()
    await put(Segment(tip=TIP, batches=[batch(300)]), storage, world.metadata)
    scrub = ScrubTask(
        storage, world.metadata, world.healing, clock=world.clock, telemetry=NoTelemetry()
    )
    assert (await scrub.run(KEY)).actions == ()


@pytest.mark.parametrize("heal", [False, True])
async def test_a_segment_deleted_between_the_listings_is_not_extra(
    world: TaskWorld, heal: bool
) -> None:
    """Retention may run at any moment; what it deleted is in the earlier listing, that of the store."""
    await three_segments(world)
    world.announce(0, TopicConfig(retention_ms=1000))
    listing = world.metadata.list_remote_log_segments
    listings: list[object] = []

    async def list_later(*args: Any) -> AsyncIterator[RemoteLogSegmentMetadata]:
        listings.append(args)
        if len(listings) == 1:
            await world.expire()
        async for segment in listing(*args):
            yield segment

    world.metadata.list_remote_log_segments = list_later  # type: ignore[method-assign]
    assert (await scrubber(world).run(KEY, heal=heal)).actions == ()
    assert world.storage.segment_ids == frozenset()


async def test_a_store_that_does_not_answer_proves_nothing(world: TaskWorld) -> None:
    await three_segments(world)
    world.storage.fail("verify_segment", RemoteStorageUnavailableError("down"))
    with pytest.raises(RemoteStorageUnavailableError):
        await scrubber(world).run(KEY)


@pytest.mark.parametrize("deep", [True, False])
async def test_a_scrub_ends_although_segments_are_copied_faster_than_it_looks_at_them(
    world: TaskWorld, monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    """What is copied after it began is for the next one."""
    monkeypatch.setattr(segment_pages, "_PAGE", 2)
    looks: list[int] = []

    class Busy(InMemoryRemoteStorageManager):
        """For every segment that is looked at two more are copied."""

        async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
            looks.append(metadata.start_offset)
            assert len(looks) < 100
            for _ in range(2):
                await copy(300 + len(looks) * 2)
            return await super().describe_segment(metadata)

    async def copy(offset: int) -> None:
        await put(Segment(tip=TIP, batches=[batch(offset)]), storage, world.metadata)

    storage = Busy()
    for offset in (100, 200, 300):
        await copy(offset)
    scrub = ScrubTask(
        storage, world.metadata, world.healing, clock=world.clock, telemetry=NoTelemetry()
    )
    assert (await scrub.run(KEY, deep=deep)).actions == ()
    assert looks == [100, 200, 300]
