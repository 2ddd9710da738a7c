"""The memory of the metadata service: past times, and a history that does not grow for ever."""

from collections.abc import AsyncIterator
from dataclasses import replace

import builders
import pytest
from aquifer.metadata.v1 import remote_log_metadata_service_pb2 as pb
from aquifer.metadata.v1.remote_log_metadata_service_pb2_grpc import (
    RemoteLogMetadataServiceStub,
    add_RemoteLogMetadataServiceServicer_to_server,
)
from aquifer_core.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_core.state import RemoteLogSegmentState, RemotePartitionDeleteState
from aquifer_metadata.adapters.postgres.change_signal import ChangeSignal
from aquifer_metadata.adapters.postgres.database import Database
from aquifer_metadata.adapters.postgres.remote_log_metadata_manager import (
    PostgresRemoteLogMetadataManager,
)
from aquifer_metadata.servicer.remote_log_history_servicer import RemoteLogHistoryServicer
from aquifer_rpc.calls import call_stream
from aquifer_rpc.channel import connect
from aquifer_rpc.convert import segment_metadata_from_pb, tip_to_pb
from aquifer_rpc.server import GrpcServer
from aquifer_rpc.settings import GrpcServerSettings
from contract.remote_log_metadata.steps import (
    brought_to,
    changes,
    found,
    listed,
    move,
    move_deletion,
)
from sqlalchemy import text

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
KEPT_MS = 1_000


class ManualClock:
    """Shows the time it was set to."""

    def __init__(self) -> None:
        self.time_ms = 10_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rlmm(metadata_database: Database, clock: ManualClock) -> PostgresRemoteLogMetadataManager:
    return PostgresRemoteLogMetadataManager(
        metadata_database,
        ChangeSignal(metadata_database),
        clock=clock,
        trace_id=lambda: "",
        watch_poll_s=0.05,
        forget_batch=2,
        history_ms=KEPT_MS,
        prune_batch=3,
    )


Rlmm = PostgresRemoteLogMetadataManager


async def at(rlmm: Rlmm, tip: TopicIdPartition, time_ms: int) -> list[RemoteLogSegmentMetadata]:
    return [segment async for segment in rlmm.past.segments_at(tip, time_ms)]


def states(segments: list[RemoteLogSegmentMetadata]) -> list[tuple[int, RemoteLogSegmentState]]:
    return [(segment.start_offset, segment.state) for segment in segments]


async def lines(database: Database) -> int:
    count = await database.read(
        lambda connection: connection.scalar(text("SELECT count(*) FROM remote_log_segment_event"))
    )
    assert count is not None
    return int(count)


async def test_a_partition_is_shown_as_it_stood_at_a_past_time(
    rlmm: Rlmm, clock: ManualClock
) -> None:
    tip = builders.topic_id_partition()
    later = builders.remote_segment(tip, 100, 199, {0: 100, 3: 150}, custom_metadata=b"\x00\xff")
    first = builders.remote_segment(tip, 0, 99)
    clock.time_ms = 10_100
    await rlmm.add_remote_log_segment_metadata(later)
    clock.time_ms = 10_200
    later = await _moved(rlmm, later, FINISHED)
    first = await brought_to(rlmm, first)
    clock.time_ms = 10_300
    await move(rlmm, first, DELETING, DELETED)
    clock.time_ms = 10_400
    await move(rlmm, later, DELETING)
    assert await at(rlmm, tip, 10_099) == []
    started = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    assert states(await at(rlmm, tip, 10_199)) == [(100, started)]
    assert await at(rlmm, tip, 10_299) == [first, later]
    assert states(await at(rlmm, tip, 10_300)) == [(100, FINISHED)]
    assert states(await at(rlmm, tip, 99_999)) == [(100, DELETING)]
    assert await at(rlmm, builders.topic_id_partition(), 99_999) == []


async def test_pruning_leaves_what_says_how_things_stood_within_the_period(
    rlmm: Rlmm, clock: ManualClock, metadata_database: Database
) -> None:
    tip = builders.topic_id_partition()
    living = await brought_to(rlmm, builders.remote_segment(tip, 0, 99))
    gone = await brought_to(rlmm, builders.remote_segment(tip, 100, 199), DELETED)
    for offset in (10, 20, 30):
        await rlmm.update_earliest_log_offset(tip, offset, 0)
    clock.time_ms += 500
    going = await brought_to(rlmm, builders.remote_segment(tip, 200, 299))
    past_ms = clock.time_ms
    before = await at(rlmm, tip, past_ms)
    clock.time_ms += KEPT_MS - 100
    await move(rlmm, going, DELETING, DELETED)
    young = await lines(metadata_database)
    assert young == 2 + 4 + 3 + 2 + 2
    # The period begins between the first changes and the later ones.
    assert await rlmm.pruning.prune() == 1 + 4 + 2
    assert await rlmm.pruning.prune() == 0
    assert await at(rlmm, tip, past_ms) == before
    assert [event.to_state for event in await rlmm.segment_history(living.segment_id)] == [FINISHED]
    assert await rlmm.segment_history(gone.segment_id) == []
    assert len(await rlmm.segment_history(going.segment_id)) == 4
    clock.time_ms += 10 * KEPT_MS
    assert await rlmm.pruning.prune() == 4
    assert await lines(metadata_database) == 2, "a living segment and a log start offset"
    assert await found(rlmm, tip, 0, 50) == living.segment_id
    assert await rlmm.earliest_log_offset(tip) == 30


async def test_what_was_pruned_is_refused_and_never_answered_wrongly(
    rlmm: Rlmm, clock: ManualClock
) -> None:
    tip = builders.topic_id_partition()
    await brought_to(rlmm, builders.remote_segment(tip, 0, 99), DELETED)
    kept = await brought_to(rlmm, builders.remote_segment(tip, 100, 199))
    began_ms = clock.time_ms
    clock.time_ms += 2 * KEPT_MS
    await rlmm.pruning.prune()
    with pytest.raises(OffsetOutOfRangeError):
        await at(rlmm, tip, began_ms)
    with pytest.raises(OffsetOutOfRangeError):
        await changes(rlmm, tip, 1, 1)
    [present] = await changes(rlmm, tip, 0, 1)
    assert present.segment == kept
    await move(rlmm, kept, DELETING)
    [change] = await changes(rlmm, tip, present.version, 1)
    assert change.segment is not None
    assert change.segment.state is DELETING


async def test_an_update_of_a_segment_that_history_forgot_is_an_unknown_one(
    rlmm: Rlmm, clock: ManualClock
) -> None:
    tip = builders.topic_id_partition()
    gone = await brought_to(rlmm, builders.remote_segment(tip, 0, 99), DELETED)
    await move(rlmm, gone, DELETED)
    clock.time_ms += 2 * KEPT_MS
    assert await rlmm.pruning.prune() == 4
    with pytest.raises(RemoteResourceNotFoundError):
        await move(rlmm, gone, DELETED)


async def test_deleted_partitions_leave_the_history_too(
    rlmm: Rlmm, clock: ManualClock, metadata_database: Database
) -> None:
    tip = builders.topic_id_partition()
    for start in range(0, 70, 10):
        await brought_to(rlmm, builders.remote_segment(tip, start, start + 9))
    await move_deletion(rlmm, tip, *RemotePartitionDeleteState)
    clock.time_ms += 2 * KEPT_MS
    assert await rlmm.pruning.prune() == 7 * 3 + 2
    assert await lines(metadata_database) == 1, "that it is deleted"
    assert await listed(rlmm, tip) == []


async def test_past_listings_come_through_grpc(rlmm: Rlmm, clock: ManualClock) -> None:
    tip = builders.topic_id_partition()
    segments = [
        await brought_to(rlmm, builders.remote_segment(tip, start, start + 9))
        for start in range(0, 30, 10)
    ]
    [page] = [page async for page in _pages(rlmm, tip, clock.time_ms)]
    assert [segment_metadata_from_pb(each) for each in page.segments] == segments


async def _pages(
    rlmm: Rlmm, tip: TopicIdPartition, time_ms: int
) -> AsyncIterator[pb.ListRemoteLogSegmentsAtResponse]:
    server = GrpcServer(GrpcServerSettings(drain_grace_s=0.1), name="metadata")
    server.add(
        add_RemoteLogMetadataServiceServicer_to_server, RemoteLogHistoryServicer(rlmm, rlmm.past)
    )
    async with server, connect(f"127.0.0.1:{server.port}") as channel:
        request = pb.ListRemoteLogSegmentsAtRequest(
            topic_id_partition=tip_to_pb(tip), timestamp_ms=time_ms
        )
        stub = RemoteLogMetadataServiceStub(channel)
        async for page in call_stream(stub.ListRemoteLogSegmentsAt, request, deadline_s=60):
            yield page


async def _moved(
    rlmm: Rlmm, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> RemoteLogSegmentMetadata:
    await move(rlmm, segment, state)
    return replace(segment, state=state, event_timestamp_ms=segment.event_timestamp_ms + int(state))
