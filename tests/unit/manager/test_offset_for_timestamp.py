"""Offsets by time (SR-26, K-3.9)."""

import resource
from typing import Any

import cramjam
import pytest
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.fakes.remote_storage import InMemoryRemoteStorageManager
from aquifer_core.formats.record_batch import CompressionCodec
from aquifer_core.formats.records import Record, encode_batch
from aquifer_core.segment import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState
from aquifer_manager.domain.fetch import FETCH_BACKOFF
from aquifer_manager.domain.offset_for_timestamp import (
    FoundOffset,
    OffsetForTimestamp,
    TimestampQuery,
)
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.reader_pool import ReaderPool
from aquifer_manager.domain.segment_finder import SegmentFinder
from fixtures.manager_indexes import remote_indexes
from fixtures.manager_segments import Segment, batch, put
from fixtures.manager_world import START_MS, HastyClock, partition

TIP = partition()
TS = START_MS
_DELETION = (
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
)


class Searches:
    """A search by time over in-memory roles."""

    def __init__(self) -> None:
        self.storage = InMemoryRemoteStorageManager()
        self.metadata = InMemoryRemoteLogMetadataManager()
        clock = HastyClock()
        indexes = remote_indexes(self.metadata, self.storage, clock)
        self.service = OffsetForTimestamp(
            self.storage,
            SegmentFinder(self.metadata, indexes, clock=clock, telemetry=NoTelemetry()),
            self,
            pool=ReaderPool(readers=2, max_pending=2),
            clock=clock,
            backoff=FETCH_BACKOFF,
        )

    async def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return await self.storage.fetch_index(metadata, index_type)

    async def put(self, *batches: bytes, **kwargs: Any) -> None:
        await put(Segment(tip=TIP, batches=batches, **kwargs), self.storage, self.metadata)

    async def delete(self, segment: RemoteLogSegmentMetadata) -> None:
        for state in _DELETION:
            update = RemoteLogSegmentMetadataUpdate(
                segment_id=segment.segment_id, event_timestamp_ms=TS, state=state, broker_id=1
            )
            await self.metadata.update_remote_log_segment_metadata(update)
        await self.storage.delete_log_segment_data(segment)

    async def find(self, timestamp_ms: int, **kwargs: Any) -> FoundOffset | None:
        given: dict[str, Any] = {
            "topic_id_partition": TIP,
            "lineage": {0: 0},
            "timestamp_ms": timestamp_ms,
            "log_start_offset": 0,
            "local_log_start_offset": 10**9,
            **kwargs,
        }
        return await self.service.find(TimestampQuery(**given), 5.0)


@pytest.fixture
def searches() -> Searches:
    return Searches()


@pytest.mark.parametrize("codec", [CompressionCodec.NONE, CompressionCodec.ZSTD])
async def test_the_first_record_at_or_after_the_timestamp(
    searches: Searches, codec: CompressionCodec
) -> None:
    """K-3.9 vector: records 120..122 of epoch 10 with ts, ts+1, ts+2."""
    await searches.put(batch(120, 3, timestamp_ms=TS, epoch=10, codec=codec), epochs={10: 120})
    lineage = {10: 120}
    found = [await searches.find(TS + n, lineage=lineage) for n in (-5, 1, 2, 3)]
    assert found == [
        FoundOffset(offset=120, timestamp_ms=TS, leader_epoch=10),
        FoundOffset(offset=121, timestamp_ms=TS + 1, leader_epoch=10),
        FoundOffset(offset=122, timestamp_ms=TS + 2, leader_epoch=10),
        None,
    ]


async def test_a_batch_that_would_fill_the_memory_is_not_opened(searches: Searches) -> None:
    """A few kilobytes from any producer may grow to gigabytes; its first offset is close enough."""
    frame = bytes(cramjam.zstd.compress(bytes(64 << 20)))
    records = [Record(offset=5 + n, timestamp_ms=TS + n, value=b"v") for n in range(3)]
    bomb = encode_batch(
        records,
        partition_leader_epoch=0,
        codec=CompressionCodec.ZSTD,
        compress=lambda _: frame * 16,
    )
    assert len(bomb) < 100_000
    await searches.put(batch(4, timestamp_ms=TS - 1), bomb)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found = await searches.find(TS + 1)

    assert found == FoundOffset(offset=5, timestamp_ms=TS + 2, leader_epoch=0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 600 << 10


async def test_only_the_part_behind_the_time_index_entry_is_read(searches: Searches) -> None:
    """T30: the time index says where to begin."""
    await searches.put(*(batch(n, timestamp_ms=TS + 10 * n) for n in range(100)))
    found = await searches.find(TS + 905)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (91, TS + 910)


async def test_timestamps_out_of_order_find_the_first_record_in_offset_order(
    searches: Searches,
) -> None:
    await searches.put(
        batch(0, timestamp_ms=TS), batch(1, timestamp_ms=TS + 100), batch(2, timestamp_ms=TS + 50)
    )
    found = await searches.find(TS + 40)
    assert found is not None
    assert found.offset == 1


async def test_records_below_the_log_start_do_not_count(searches: Searches) -> None:
    await searches.put(batch(0, 2, timestamp_ms=TS + 9), batch(2, timestamp_ms=TS), end_offset=5)
    await searches.put(batch(6, timestamp_ms=TS + 20))
    found = await searches.find(TS + 5, log_start_offset=2)
    assert found is not None
    assert found.offset == 6


async def test_segments_that_are_local_are_left_to_the_broker(searches: Searches) -> None:
    """SR-26: remote first, then the caller looks locally."""
    await searches.put(batch(0, timestamp_ms=TS))
    await searches.put(batch(1, timestamp_ms=TS + 10))
    assert await searches.find(TS + 5, local_log_start_offset=1) is None
    found = await searches.find(TS, local_log_start_offset=1)
    assert found is not None
    assert found.offset == 0


async def test_segments_out_of_the_lineage_do_not_count(searches: Searches) -> None:
    await searches.put(batch(0, timestamp_ms=TS, epoch=3), epochs={3: 0})
    assert await searches.find(TS, lineage={0: 0, 4: 1}) is None


async def test_a_segment_deleted_between_the_look_up_and_the_read_is_passed_over(
    searches: Searches,
) -> None:
    """Retention may run at any moment: the next segment answers, or the caller's local log."""
    await searches.put(batch(0, timestamp_ms=TS))
    await searches.put(batch(1, timestamp_ms=TS + 5))
    look_up = searches.metadata.find_segment_for_timestamp

    async def found(*args: Any) -> RemoteLogSegmentMetadata | None:
        segment = await look_up(*args)
        if segment is not None and segment.start_offset == 0:
            await searches.delete(segment)
        return segment

    searches.metadata.find_segment_for_timestamp = found  # type: ignore[method-assign]
    assert await searches.find(TS) == FoundOffset(offset=1, timestamp_ms=TS + 5, leader_epoch=0)
    assert await searches.find(TS + 6) is None


async def test_a_segment_that_the_store_lost_is_not_taken_for_one_without_such_records(
    searches: Searches,
) -> None:
    await searches.put(batch(0, timestamp_ms=TS))
    segment = await searches.metadata.find_segment_for_timestamp(TIP, {0: 0}, TS)
    assert segment is not None
    await searches.storage.delete_log_segment_data(segment)
    with pytest.raises(RemoteResourceNotFoundError):
        await searches.find(TS)
