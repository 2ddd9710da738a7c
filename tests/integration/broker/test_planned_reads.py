"""Several reads by one plan of the manager, and what ends its use (SR-19, K-3.7, K-3.8)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aquifer_broker.tiering.fetch_paths import DirectFetchPath
from aquifer_broker.tiering.manager_client import ManagerClient
from aquifer_broker.tiering.remote_fetch import AbortedRange, FetchPlan, RemoteFetch
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.transaction_index import AbortedTransaction
from aquifer_core.ids import KafkaUuid
from aquifer_core.segment import (
    IsolationLevel,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from aquifer_core.state import RemoteLogSegmentState
from aquifer_rpc.channel import connect
from fixtures.manager_segments import Segment, batch, put
from fixtures.tiered_broker import TieredBroker, partition_of

TIP = partition_of("events")


class CountingManager(ManagerClient):
    """Counts the plans that it is asked for."""

    plans = 0

    async def plan_fetch(self, *args: Any, **kwargs: Any) -> FetchPlan:
        self.plans += 1
        return await super().plan_fetch(*args, **kwargs)


class Reader:
    """A direct path, and the log that it reads."""

    def __init__(self, tiered: TieredBroker, manager: CountingManager) -> None:
        self._tiered = tiered
        self._manager = manager
        self._path = DirectFetchPath(manager, tiered.storage)

    @property
    def plans(self) -> int:
        """How often the manager was asked."""
        return self._manager.plans

    async def put(self, start: int, end: int, **kwargs: Any) -> RemoteLogSegmentMetadata:
        """A remote segment with a batch for each offset."""
        batches = tuple(batch(offset) for offset in range(start, end + 1))
        segment = Segment(tip=TIP, batches=batches, **kwargs)
        return await put(segment, self._tiered.storage, self._tiered.metadata)

    async def delete(self, segment: RemoteLogSegmentMetadata) -> None:
        """Takes a segment out of metadata and store."""
        for state in (
            RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
        ):
            await self._tiered.metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=segment.segment_id, event_timestamp_ms=1, state=state, broker_id=1
                )
            )
        await self._tiered.storage.delete_log_segment_data(segment)

    async def read(
        self, offset: int, **changes: Any
    ) -> tuple[list[int], tuple[AbortedRange, ...], RemoteLogSegmentMetadata | None]:
        """Base offsets, aborted transactions and the segment of a committed read."""
        given: dict[str, Any] = {
            "topic_id_partition": TIP,
            "leader_epoch": 0,
            "fetch_offset": offset,
            "max_bytes": 1 << 20,
            "min_one_batch": True,
            "isolation": IsolationLevel.READ_COMMITTED,
            "lineage": ((0, 0),),
            "local_log_start_offset": 100,
            **changes,
        }
        fetched = await self._path.fetch(RemoteFetch(**given), 60)
        offsets = [each.base_offset for each in iter_batches(b"".join(fetched.pieces))]
        return offsets, fetched.plan.aborted, fetched.plan.segment


@pytest.fixture
async def reader(tiered: TieredBroker) -> AsyncIterator[Reader]:
    async with connect(f"127.0.0.1:{tiered.manager.server.port}") as channel:
        yield Reader(tiered, CountingManager(channel, broker_id=1, incarnation=KafkaUuid.random()))


async def test_a_reader_that_reads_on_asks_the_manager_once(reader: Reader) -> None:
    for start in (0, 5, 10):
        await reader.put(start, start + 4)
    assert (await reader.read(0, max_bytes=1))[0] == [0]
    assert (await reader.read(1))[0] == [1, 2, 3, 4]
    assert (await reader.read(5))[0] == [5, 6, 7, 8, 9]
    assert (await reader.read(12, isolation=IsolationLevel.READ_UNCOMMITTED))[0] == [12, 13, 14]
    assert reader.plans == 1


async def test_a_segment_with_little_more_than_asked_for_is_read_to_its_end(reader: Reader) -> None:
    segment = await reader.put(0, 9)
    size_bytes = segment.segment_size_bytes
    assert (await reader.read(0, max_bytes=size_bytes // 2, rest_bytes=size_bytes))[0] == [
        *range(10)
    ]
    assert (await reader.read(2, max_bytes=1, rest_bytes=size_bytes // 5))[0] == [2]
    assert (await reader.read(8, max_bytes=1, rest_bytes=size_bytes // 5))[0] == [8, 9]


async def test_where_transactions_were_aborted_no_more_is_read_than_was_asked_for(
    reader: Reader,
) -> None:
    """K-3.8: the plan names what was aborted in so many bytes."""
    ended = AbortedTransaction(producer_id=7, first_offset=5, last_offset=8, last_stable_offset=9)
    segment = await reader.put(0, 9, aborted=(ended,))
    read = await reader.read(0, max_bytes=1, rest_bytes=segment.segment_size_bytes)
    assert read[0] == [0]


async def test_a_hole_between_two_segments_of_a_plan_is_skipped(reader: Reader) -> None:
    """SR-23."""
    await reader.put(0, 2, end_offset=9)
    await reader.put(10, 11)
    assert (await reader.read(0))[0] == [0, 1, 2]
    assert (await reader.read(3))[0] == [10, 11]
    assert reader.plans == 1


async def test_of_a_segment_deleted_since_the_plan_another_copy_is_read(reader: Reader) -> None:
    first = await reader.put(0, 4)
    assert (await reader.read(0, max_bytes=1))[2] == first
    await reader.delete(first)
    second = await reader.put(0, 4)
    offsets, _, segment = await reader.read(1)
    assert (offsets, segment) == ([1, 2, 3, 4], second)
    assert (await reader.read(2))[2] == second
    assert reader.plans == 2


async def test_records_deleted_since_the_plan_are_not_found(reader: Reader) -> None:
    """Retention and DeleteRecords do not ask who is reading."""
    first = await reader.put(0, 4)
    await reader.put(5, 9)
    assert (await reader.read(0, max_bytes=1))[0] == [0]
    await reader.delete(first)
    with pytest.raises(RemoteResourceNotFoundError):
        await reader.read(1)
    assert (await reader.read(5))[0] == [5, 6, 7, 8, 9]


async def test_what_was_aborted_behind_the_plan_is_found_when_it_is_no_longer_local(
    reader: Reader,
) -> None:
    """K-3.8: the marker was local when the plan was made; once the local log begins behind it only a search finds it."""
    await reader.put(0, 9)
    assert (await reader.read(0, max_bytes=1, local_log_start_offset=10))[1] == ()
    ended = AbortedTransaction(producer_id=7, first_offset=5, last_offset=12, last_stable_offset=13)
    await reader.put(10, 19, aborted=(ended,))
    assert (await reader.read(4, local_log_start_offset=10))[1] == ()
    assert reader.plans == 1
    assert (await reader.read(4, local_log_start_offset=20))[1] == (AbortedRange(7, 5, 12),)
    assert reader.plans == 2


async def test_a_plan_for_uncommitted_reads_says_nothing_of_transactions(reader: Reader) -> None:
    ended = AbortedTransaction(producer_id=7, first_offset=5, last_offset=8, last_stable_offset=9)
    await reader.put(0, 9, aborted=(ended,))
    uncommitted = IsolationLevel.READ_UNCOMMITTED
    assert (await reader.read(0, max_bytes=1, isolation=uncommitted))[1] == ()
    assert (await reader.read(1))[1] == (AbortedRange(7, 5, 8),)
    assert (await reader.read(2))[1] == (AbortedRange(7, 5, 8),)
    assert reader.plans == 3


async def test_another_lineage_needs_another_plan(reader: Reader) -> None:
    """The log may have been cut and written anew by another leader."""
    await reader.put(0, 9)
    await reader.read(0, max_bytes=1)
    await reader.read(1, lineage=((0, 0), (1, 50)))
    await reader.read(1, lineage=((0, 0), (1, 50)))
    assert reader.plans == 2
