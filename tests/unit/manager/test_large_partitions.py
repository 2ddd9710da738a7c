"""Explanations and scrubs of partitions with very many segments hold a few of them at a time."""

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata, StoredSegment, VerifyProgress
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain import scrub_task
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.segment_pages import segment_pages
from aquifer_manager.domain.tasks import TaskKey, TaskOutcome, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from aquifer_manager.domain.why_reasons import WhyQuestion, WhyReason
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import START_MS

SEGMENTS = 8000
HELD = 2000
"""Several pages; a partition of a million segments would have as many."""
RECORDS = 100


class Counted(RemoteLogSegmentMetadata):
    """A segment that is counted as long as somebody holds it."""

    __slots__ = ()
    held: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        Counted.held += 1
        Counted.most = max(Counted.most, Counted.held)

    def __del__(self) -> None:
        Counted.held -= 1


def segment(number: int, kind: int = 0) -> Counted:
    """The same for the same number; those of another kind have other ids."""
    return Counted(
        segment_id=RemoteLogSegmentId(TIP, KafkaUuid((2 * number + kind + 1).to_bytes(16, "big"))),
        start_offset=number * RECORDS,
        end_offset=(number + 1) * RECORDS - 1,
        broker_id=1,
        max_timestamp_ms=START_MS + number,
        event_timestamp_ms=START_MS,
        segment_size_bytes=1000,
        segment_leader_epochs={0: number * RECORDS},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


class LargeMetadata(InMemoryRemoteLogMetadataManager):
    """Lists very many segments, made as they are asked for."""

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        for number in range(SEGMENTS):
            yield segment(number)

    async def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        for number in range(-(-start_offset // RECORDS), SEGMENTS):
            yield segment(number)


class LargeStore(InMemoryRemoteStorageManager):
    """Holds them, and a stray copy besides some; a few are missing. What healing deletes is gone."""

    def __init__(self, stray_every: int, missing: frozenset[int]) -> None:
        super().__init__()
        self.stray_every = stray_every
        self.missing = missing
        self.deleted: set[RemoteLogSegmentId] = set()

    async def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        numbers = range(SEGMENTS)
        if prefix.endswith("-"):
            first = int(prefix.rsplit("/", 1)[1][:-1]) // RECORDS
            numbers = range(first, first + 1)
        for number in numbers:
            if number not in self.missing:
                yield stored(segment(number))
            if number % self.stray_every == 0:
                stray = segment(number, kind=1)
                if stray.segment_id not in self.deleted:
                    yield stored(stray)

    async def describe_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        if metadata.start_offset // RECORDS in self.missing:
            return await super().describe_segment(metadata)
        return stored(metadata)

    async def verify_segment(
        self, metadata: RemoteLogSegmentMetadata
    ) -> AsyncIterator[VerifyProgress]:
        yield VerifyProgress(verified_bytes=1, total_bytes=1, findings=(), done=True)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.deleted.add(metadata.segment_id)


def stored(metadata: RemoteLogSegmentMetadata) -> StoredSegment:
    return StoredSegment(
        metadata=metadata,
        object_keys=("key",),
        stored_bytes=1,
        original_bytes=1,
        chunk_count=1,
        codec="none",
        key_id=None,
        sha256={},
        writer_version="test",
    )


@pytest.fixture
async def large(world: TaskWorld) -> TaskWorld:
    world.metadata = LargeMetadata(clock=world.clock)
    await stored_in(world, LargeStore(stray_every=2000, missing=frozenset({7, SEGMENTS - 1})))
    return world


async def stored_in(world: TaskWorld, store: LargeStore) -> None:
    """A manager over a store; all of the log is remote, and old."""
    Counted.most = Counted.held
    world.storage = store
    world.restart()
    log = world.leading(config=TopicConfig(retention_ms=1000))
    log.log_end_offset = log.local_log_start_offset = SEGMENTS * RECORDS
    log.last_stable_offset = log.log_end_offset
    log.highest_remote_offset = log.log_end_offset - 1
    await world.clock.sleep(3600)


async def scrubbed(world: TaskWorld, **options: Any) -> TaskOutcome:
    scrub = ScrubTask(
        world.storage,
        world.metadata,
        world.healing,
        clock=world.clock,
        telemetry=NoTelemetry(),
        grace_ms=60_000,
    )
    return await scrub.run(TaskKey(TIP, TaskType.SCRUB), **options)


def shapes(outcome: TaskOutcome) -> list[tuple[str, str, int]]:
    return [
        (each.action.value, each.reason, each.segment.start_offset // RECORDS)
        for each in outcome.actions
    ]


async def test_an_explanation_holds_a_few_segments_at_a_time(large: TaskWorld) -> None:
    explainer = large.explainer()
    middle = SEGMENTS // 2 * RECORDS
    answers = await explainer.explain_offset(TIP, middle)
    assert [each.start_offset for each in answers if each.question is WhyQuestion.NOT_DELETED] == [
        middle
    ]
    [told] = [
        each
        for each in await explainer.explain_segment(TIP, segment(SEGMENTS - 1).segment_id.id)
        if each.question is WhyQuestion.NOT_DELETED
    ]
    assert told.end_offset == SEGMENTS * RECORDS - 1
    assert await explainer.explain_partition(TIP)
    assert Counted.most < HELD


async def test_an_offset_that_no_lookup_finds_is_explained_from_the_listing(
    large: TaskWorld,
) -> None:
    """Metadata's look-up knows of none of them here, so the listing says what there is."""
    answers = await large.explainer().explain_offset(TIP, 150)
    [read] = [each for each in answers if each.question is WhyQuestion.UNREADABLE]
    assert read.reason is WhyReason.NOT_IN_LINEAGE
    assert read.segment_id == segment(1).segment_id.id
    assert Counted.most < HELD


@pytest.mark.parametrize("deep", [True, False])
async def test_a_scrub_holds_a_few_segments_at_a_time(large: TaskWorld, deep: bool) -> None:
    outcome = await scrubbed(large, deep=deep)
    assert shapes(outcome) == [
        *(("extra", "NOT_IN_METADATA", number) for number in range(0, SEGMENTS, 2000)),
        ("missing", "NOT_IN_STORE", 7),
        ("missing", "NOT_IN_STORE", SEGMENTS - 1),
    ]
    assert not outcome.more_work
    assert Counted.most < HELD


async def test_a_scrub_that_finds_very_much_ends_early_says_so_and_goes_on_when_it_is_healed(
    large: TaskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_task, "_MOST_FINDINGS", 3)
    await stored_in(large, LargeStore(stray_every=2000, missing=frozenset()))
    first = await scrubbed(large, deep=False, heal=True)
    assert [each.healed for each in first.actions] == [True] * 3
    assert first.more_work
    second = await scrubbed(large, deep=False, heal=True)
    assert shapes(second) == [("extra", "NOT_IN_METADATA", 6000)]
    assert not second.more_work


async def test_pages_hold_every_segment_once_also_where_many_begin_at_one_offset() -> None:
    class Crowded(InMemoryRemoteLogMetadataManager):
        starts: ClassVar[list[int]] = [0] * 3 + [100] * 1201 + [200] * 499 + [300]

        async def list_remote_log_segments(
            self, *_: Any
        ) -> AsyncIterator[RemoteLogSegmentMetadata]:
            for number, start in enumerate(self.starts):
                made = segment(start // RECORDS)
                yield Counted(
                    **{
                        name: getattr(made, name)
                        for name in RemoteLogSegmentMetadata.__dataclass_fields__
                    }
                    | {
                        "segment_id": RemoteLogSegmentId(
                            TIP, KafkaUuid((number + 1).to_bytes(16, "big"))
                        )
                    }
                )

        async def list_remote_log_segments_from(
            self, topic_id_partition: TopicIdPartition, start_offset: int
        ) -> AsyncIterator[RemoteLogSegmentMetadata]:
            async for each in self.list_remote_log_segments():
                if each.start_offset >= start_offset:
                    yield each

    pages = [page async for page in segment_pages(Crowded(), TIP)]
    assert [each.start_offset for page in pages for each in page] == Crowded.starts
    assert len({each.segment_id for page in pages for each in page}) == len(Crowded.starts)
    assert max(map(len, pages)) == 500
