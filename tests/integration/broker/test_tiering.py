import asyncio

import pytest
from aquifer.broker.v1 import broker_log_service_pb2 as pb
from aquifer.broker.v1.broker_log_service_pb2_grpc import BrokerLogServiceStub
from aquifer_broker.cluster.hosted_partitions import HostedPartition
from aquifer_broker.handlers.remote_log import RemoteRead, RemoteReadRequest
from aquifer_broker.log.log_values import AppendOrigin, FetchIsolation
from aquifer_core.errors import (
    NotLeaderError,
    OffsetOutOfRangeError,
    RemoteResourceNotFoundError,
    StaleLeaderEpochError,
    UnavailableError,
)
from aquifer_core.fakes.remote_log_metadata import InMemoryRemoteLogMetadataManager
from aquifer_core.formats.record_batch import iter_batches
from aquifer_core.formats.records import decode_records
from aquifer_core.state import RemoteLogSegmentState
from aquifer_rpc import convert
from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from fixtures.broker_logs import NOW_MS, client_batch, end_marker
from fixtures.manager_world import Fault, Faults, faulty
from fixtures.polling import eventually
from fixtures.tiered_broker import TieredBroker, fill, partition_of, tiered_topic


def _request(hosted: HostedPartition, offset: int, **changes: object) -> RemoteReadRequest:
    values: dict[str, object] = {
        "log": hosted.log,
        "leader_epoch": hosted.leader_epoch,
        "fetch_offset": offset,
        "max_bytes": 1 << 20,
        "min_one_batch": True,
        "isolation": FetchIsolation.HIGH_WATERMARK,
        **changes,
    }
    return RemoteReadRequest(**values)  # type: ignore[arg-type]


def _bytes(read: RemoteRead) -> bytes:
    pieces = getattr(read.records, "pieces", None)
    return b"".join(pieces) if pieces is not None else bytes(read.records)  # type: ignore[arg-type]


async def _read_all(
    tiered: TieredBroker, hosted: HostedPartition
) -> list[tuple[int, bytes | None]]:
    """Reads as a consumer does: remote below the local log, then local."""
    offset, found = hosted.log.log_start_offset, []
    while offset < hosted.log.high_watermark:
        if offset < hosted.log.local_log_start_offset:
            records = _bytes(await tiered.tiering.remote_log.read(_request(hosted, offset)))
        else:
            records = bytes((await hosted.log.read(offset, 1 << 20)).records)
        for batch in iter_batches(records):
            found += [(record.offset, record.value) for record in decode_records(batch)]
            offset = batch.next_offset
    return found


@pytest.mark.parametrize("path", ["manager", "direct"])
async def test_what_left_the_local_disk_is_read_back_from_remote_storage(
    tiered: TieredBroker, path: str
) -> None:
    """SR-15, SR-16, SR-19, SR-21"""
    await tiered.stop()
    tiered.properties["aquifer.remote.fetch.path"] = path
    await tiered.start()
    hosted = await tiered.create()
    await fill(hosted, 4)
    await hosted.log.append(client_batch(2, value=b"40"), leader_epoch=0)

    await tiered.copied(hosted, 39)
    await eventually(lambda: hosted.log.local_log_start_offset >= 40)

    assert hosted.log.log_start_offset == 0
    expected = [(offset, b"%d" % (offset - offset % 2)) for offset in range(42)]
    assert await _read_all(tiered, hosted) == expected


async def test_a_rolled_segment_is_copied_long_before_the_task_interval(
    tiered: TieredBroker,
) -> None:
    hosted = await tiered.create()
    await eventually(lambda: tiered.tiering.registered)
    await fill(hosted, 1)

    async with asyncio.timeout(60):
        await tiered.copied(hosted, 9)


async def test_a_remote_read_stays_within_its_size_and_gives_one_batch_at_least(
    tiered: TieredBroker,
) -> None:
    hosted = await tiered.create()
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)
    size = len(client_batch(2, value=b"0"))
    read = tiered.tiering.remote_log.read

    assert len(_bytes(await read(_request(hosted, 3, max_bytes=2 * size)))) == 2 * size
    assert len(_bytes(await read(_request(hosted, 3, max_bytes=1)))) == size
    none = await read(_request(hosted, 3, max_bytes=1, min_one_batch=False))
    assert _bytes(none) == b""


async def test_aborted_transactions_are_found_in_remote_and_local_segments(
    tiered: TieredBroker,
) -> None:
    """K-3.8"""
    hosted = await tiered.create()
    log = hosted.log

    async def send(pid: int, sequence: int) -> None:
        batch = client_batch(producer_id=pid, epoch=0, sequence=sequence, transactional=True)
        await log.append(batch, leader_epoch=0)

    async def abort(pid: int) -> None:
        marker = end_marker(pid, 0, commit=False)
        await log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    await send(1, 0)
    await abort(1)
    await log.append(client_batch(), leader_epoch=0)
    await log.roll_active()
    await tiered.copied(hosted, 2)
    read = await tiered.tiering.remote_log.read(
        _request(hosted, 0, isolation=FetchIsolation.TXN_COMMITTED)
    )

    assert read.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in read.aborted_transactions] == [(1, 0)]
    plain = await tiered.tiering.remote_log.read(_request(hosted, 0))
    assert plain.aborted_transactions is None


async def test_a_part_of_a_large_read_names_no_transaction_that_ended_before_it(
    tiered: TieredBroker,
) -> None:
    """A consumer would skip what the same producer committed next (K-3.8)."""
    hosted = await tiered.create()
    log = hosted.log
    for sequence, commit in enumerate((False, True, False, True)):
        batch = client_batch(producer_id=1, epoch=0, sequence=sequence, transactional=True)
        await log.append(batch, leader_epoch=0)
        marker = end_marker(1, 0, commit=commit)
        await log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    await log.roll_active()
    await tiered.copied(hosted, 2)

    named = []
    for offset in range(8):
        read = await tiered.tiering.remote_log.read(
            _request(hosted, offset, max_bytes=1, isolation=FetchIsolation.TXN_COMMITTED)
        )
        assert read.aborted_transactions is not None
        named.append([each.first_offset for each in read.aborted_transactions])

    assert named == [[0], [0], [], [], [4], [4], [], []]


async def test_offsets_are_found_by_time_in_remote_storage_first(tiered: TieredBroker) -> None:
    """SR-26"""
    hosted = await tiered.create()
    for number in range(4):
        await hosted.log.append(client_batch(timestamp_ms=NOW_MS + number * 10), leader_epoch=0)
        await hosted.log.roll_active()
    await tiered.copied(hosted, 3)
    await eventually(lambda: hosted.log.local_log_start_offset == 4)

    found = await tiered.tiering.remote_log.offset_for_timestamp(hosted.log, NOW_MS + 11)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (2, NOW_MS + 20, 0)
    assert await tiered.tiering.remote_log.offset_for_timestamp(hosted.log, NOW_MS + 31) is None


async def test_deleted_records_are_cleaned_remotely_without_anybody_waiting(
    tiered: TieredBroker,
) -> None:
    """SR-25"""
    hosted = await tiered.create()
    await fill(hosted, 3)
    await tiered.copied(hosted, 29)

    await hosted.log.increase_log_start_offset(20)
    tiered.tiering.remote_log.log_start_raised(hosted.log, 0)

    async def starts() -> list[int]:
        listed = tiered.metadata.list_remote_log_segments(hosted.topic_id_partition)
        return [each.start_offset async for each in listed]

    async def only_the_last_is_left() -> bool:
        return await starts() == [20]

    await eventually(only_the_last_is_left)


async def test_a_deleted_topic_loses_its_remote_data(tiered: TieredBroker) -> None:
    hosted = await tiered.create()
    await fill(hosted, 2)
    await tiered.copied(hosted, 19)

    tiered.update(deleted=(hosted.topic_id_partition.topic_id,))

    async def nothing_is_stored() -> bool:
        return [each async for each in tiered.storage.list_stored_segments()] == []

    await eventually(nothing_is_stored)


async def test_a_deletion_that_metadata_cannot_be_told_of_is_repeated_and_holds_up_nothing(
    tiered: TieredBroker,
) -> None:
    """T20: it is answered only when it cannot be lost any more."""
    mark, faults = "put_remote_partition_delete_metadata", Faults()
    await tiered.stop_manager()
    tiered.metadata = faulty(InMemoryRemoteLogMetadataManager, faults, [mark])
    await tiered.start_manager()
    first = await tiered.create("first")
    await fill(first, 2)
    await tiered.copied(first, 19)
    stored = tiered.storage.segment_ids

    faults.inject(mark, Fault(times=10**6))
    tiered.update(deleted=(first.topic_id_partition.topic_id,))
    await eventually(lambda: faults.calls.count(mark) > 1)
    second = await tiered.create("second")
    await fill(second, 2)
    await tiered.copied(second, 19)
    assert stored < tiered.storage.segment_ids

    faults.by_method.clear()
    await eventually(lambda: not stored & tiered.storage.segment_ids)


async def test_a_manager_that_forgot_everything_is_told_everything_again(
    tiered: TieredBroker,
) -> None:
    hosted = await tiered.create()
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)

    await tiered.stop_manager()
    await fill(hosted, 1)
    with pytest.raises(UnavailableError):
        await tiered.tiering.remote_log.read(_request(hosted, 0))
    assert (await hosted.log.append(client_batch(), leader_epoch=0)).first_offset == 20
    await tiered.start_manager()

    await tiered.copied(hosted, 19)
    assert _bytes(await tiered.tiering.remote_log.read(_request(hosted, 0)))


async def test_a_new_leader_epoch_is_announced_and_used_for_copies(tiered: TieredBroker) -> None:
    hosted = await tiered.create()
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)

    tiered.update(tiered_topic("events", epoch=3))
    again = await tiered.hosted_in("events", 3)
    await fill(again, 1)
    await tiered.copied(again, 19)

    listed = tiered.metadata.list_remote_log_segments(partition_of("events"), 3)
    (segment,) = [each async for each in listed]
    assert (segment.start_offset, dict(segment.segment_leader_epochs)) == (10, {3: 10})
    assert segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED


async def test_changed_settings_reach_the_manager(tiered: TieredBroker) -> None:
    hosted = await tiered.create(retention_ms="-1")
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)

    tiered.update(tiered_topic("events", retention_ms="123456789"))

    def retention() -> bool:
        states = tiered.manager.manager.list_partitions()
        return [state.config.retention_ms for state in states] == [123456789]

    await eventually(retention)


async def test_an_offset_that_no_remote_segment_holds_is_out_of_range(tiered: TieredBroker) -> None:
    hosted = await tiered.create()
    await fill(hosted, 1)
    await tiered.copied(hosted, 9)

    with pytest.raises(OffsetOutOfRangeError):
        await tiered.tiering.remote_log.read(_request(hosted, 10))


async def test_a_broker_that_is_not_the_leader_in_that_epoch_copies_nothing(
    tiered: TieredBroker,
) -> None:
    hosted = await tiered.create(epoch=4)
    async with connect(tiered.tiering.broker_log_address) as channel:
        stub = BrokerLogServiceStub(channel)
        for epoch, error in ((3, StaleLeaderEpochError), (5, StaleLeaderEpochError)):
            request = pb.RollSegmentRequest(
                topic_id_partition=convert.tip_to_pb(hosted.topic_id_partition), leader_epoch=epoch
            )
            with pytest.raises(error):
                await call_unary(stub.RollSegment, request)
        tiered.update(tiered_topic("events", leader=2, epoch=5))
        await tiered.hosted_in("events", 5)
        with pytest.raises(NotLeaderError):
            await call_unary(stub.RollSegment, request)
        unknown = convert.tip_to_pb(partition_of("nowhere"))
        with pytest.raises(RemoteResourceNotFoundError):
            await call_unary(stub.RollSegment, pb.RollSegmentRequest(topic_id_partition=unknown))
        described = await call_unary(
            stub.DescribeLogs,
            pb.DescribeLogsRequest(logs=[pb.DescribeLog(topic_id_partition=unknown)]),
        )
        assert [log.missing for log in described.logs] == [True]
