"""Reading two listings side by side, and coverage in one pass, find what sets of everything would."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.ids import KafkaUuid, RemoteLogSegmentId, TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata, StoredSegment
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain import segment_pages
from aquifer_manager.domain.coverage import Coverage, Coverages
from aquifer_manager.domain.scrub_listings import unlisted_segments
from fixtures.manager_world import partition
from hypothesis import given, settings
from hypothesis import strategies as st

TIP = partition()
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True)
class Drawn:
    """A segment, and who has it."""

    segment: RemoteLogSegmentMetadata
    listed: bool
    stored: bool


@st.composite
def segments(draw: st.DrawFn) -> list[Drawn]:
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(0, 12), st.integers(0, 6), st.integers(0, 2), st.sampled_from([1, 2, 3])
            ),
            max_size=25,
        )
    )
    return [
        Drawn(segment(number, start, start + length, epoch), bool(who & 1), bool(who & 2))
        for number, (start, length, epoch, who) in enumerate(shapes)
    ]


def segment(number: int, start: int, end: int, epoch: int) -> RemoteLogSegmentMetadata:
    epochs = {epoch: start} if start == end else {epoch: start, epoch + 1: (start + end + 1) // 2}
    scattered = (number * 7919 + 13).to_bytes(8, "little") + number.to_bytes(8, "big")
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TIP, KafkaUuid(scattered)),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=0,
        event_timestamp_ms=0,
        segment_size_bytes=1,
        segment_leader_epochs=epochs,
        state=FINISHED,
    )


class Metadata(InMemoryRemoteLogMetadataManager):
    """Lists what was drawn, by start offset and id."""

    def __init__(self, found: list[RemoteLogSegmentMetadata]) -> None:
        super().__init__()
        self.found = sorted(found, key=lambda each: (each.start_offset, each.segment_id.id))

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        for each in self.found:
            yield each

    async def list_remote_log_segments_from(
        self, topic_id_partition: TopicIdPartition, start_offset: int
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        for each in self.found:
            if each.start_offset >= start_offset:
                yield each


class Store(InMemoryRemoteStorageManager):
    """Lists what was drawn, by object key: start offset, then the id's text."""

    def __init__(self, found: list[RemoteLogSegmentMetadata]) -> None:
        super().__init__()
        self.found = sorted(found, key=lambda each: (each.start_offset, str(each.segment_id.id)))

    async def list_stored_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        for each in self.found:
            yield StoredSegment(
                metadata=each,
                object_keys=(prefix,),
                stored_bytes=1,
                original_bytes=1,
                chunk_count=1,
                codec="none",
                key_id=None,
                sha256={},
                writer_version="test",
            )


async def unlisted(drawn: list[Drawn]) -> list[RemoteLogSegmentMetadata]:
    metadata = Metadata([each.segment for each in drawn if each.listed])
    storage = Store([each.segment for each in drawn if each.stored])
    return [each async for each in unlisted_segments(storage, metadata, TIP)]


@settings(deadline=None, max_examples=200)
@given(drawn=segments(), page=st.integers(1, 4))
def test_what_is_stored_and_not_listed_is_found_whatever_the_pages(
    drawn: list[Drawn], page: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_pages, "_PAGE", page)
        found = asyncio.run(unlisted(drawn))
    wanted = {each.segment.segment_id for each in drawn if each.stored and not each.listed}
    assert {each.segment_id for each in found} == wanted
    assert len(found) == len(wanted)


@settings(deadline=None, max_examples=200)
@given(drawn=segments(), log_start=st.integers(0, 18))
def test_coverage_in_one_pass_is_that_by_every_single_segment(
    drawn: list[Drawn], log_start: int
) -> None:
    asked = [each.segment for each in drawn if not each.listed]
    others = [each.segment for each in drawn if each.listed]
    coverages = Coverages(asked)
    for other in sorted(others, key=lambda each: each.start_offset):
        coverages.note(other)
    for segment_ in asked:
        alone = Coverage(segment_)
        for other in others:
            alone.note(other)
        swept = coverages.of(segment_.segment_id.id)
        assert offsets(swept, log_start) == offsets(alone, log_start)
        assert offsets(swept, log_start) == {
            (epoch, offset)
            for epoch, (first, last) in segment_.epoch_ranges().items()
            for offset in range(max(first, log_start), last + 1)
            if not any(holds(other, epoch, offset) for other in others)
        }


def offsets(coverage: Coverage, log_start: int) -> set[tuple[int, int]]:
    left = coverage.left(None, log_start)
    return {
        (epoch, offset)
        for epoch, (first, last) in coverage.segment.epoch_ranges().items()
        for offset in range(first, last + 1)
        if any(start <= offset <= end for start, end in left)
    }


def holds(other: RemoteLogSegmentMetadata, epoch: int, offset: int) -> bool:
    first, last = other.epoch_ranges().get(epoch, (0, -1))
    return first <= offset <= last
