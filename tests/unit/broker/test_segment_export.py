import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_values import AppendOrigin
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.leader_epoch_checkpoint import parse_leader_epochs
from aquifer_core.formats.producer_snapshot import decode_snapshot
from fixtures.broker_logs import NOW_MS, LogWorkshop, client_batch, end_marker


async def test_a_rolled_segment_comes_with_everything_that_kafka_copies(
    workshop: LogWorkshop,
) -> None:
    """K-3.2: snapshot of the next base offset, epochs from the beginning up to it."""
    log = await workshop.open(LogConfig(index_interval_bytes=1))
    for number in range(30):
        await log.append(
            client_batch(1, producer_id=4, epoch=0, sequence=number, timestamp_ms=NOW_MS + number),
            leader_epoch=number // 8,
        )
        if number in (9, 19):
            await log.roll_active()

    async with log.segment_data(10) as data:
        log_bytes = b"".join([bytes(piece) async for piece in data.log_segment.chunks()])

    path = log.directory / "00000000000000000010.log"
    assert log_bytes == path.read_bytes()
    assert data.offset_index == path.with_suffix(".index").read_bytes()
    assert data.time_index == path.with_suffix(".timeindex").read_bytes()
    assert data.transaction_index is None
    assert data.producer_snapshot is not None
    assert decode_snapshot(data.producer_snapshot)[0].last_sequence == 19
    epochs = parse_leader_epochs(data.leader_epochs)
    assert [(each.epoch, each.start_offset) for each in epochs] == [(0, 0), (1, 8), (2, 16)]
    (segment,) = log.rolled_segments(10)
    assert (segment.base_offset, segment.end_offset) == (10, 19)
    assert segment.max_timestamp_ms == NOW_MS + 19


async def test_aborted_transactions_travel_in_the_transaction_index(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(
        client_batch(producer_id=1, epoch=0, sequence=0, transactional=True), leader_epoch=0
    )
    await log.append(
        end_marker(1, 0, commit=False), leader_epoch=0, origin=AppendOrigin.COORDINATOR
    )
    await log.roll_active()

    async with log.segment_data(0) as data:
        assert data.transaction_index is not None
        assert len(data.transaction_index) == 34


@pytest.mark.parametrize("base_offset", [3, 10])
async def test_neither_the_active_segment_nor_a_wrong_offset_can_be_copied(
    workshop: LogWorkshop, base_offset: int
) -> None:
    log = await workshop.open()
    await log.append(client_batch(10), leader_epoch=0)
    await log.roll_active()

    with pytest.raises(RemoteResourceNotFoundError):
        async with log.segment_data(base_offset):
            pass


async def test_a_follower_starts_from_what_remote_storage_knows(workshop: LogWorkshop) -> None:
    """K-3.11"""
    leader = await workshop.open(name="leader-0")
    await leader.append(client_batch(10, producer_id=7, epoch=2, sequence=0), leader_epoch=3)
    await leader.roll_active()
    follower = await workshop.open(
        LogConfig(remote_storage_enable=True), name="follower-0", replicated=True
    )

    async with leader.segment_data(0) as data:
        await follower.restart_from_remote(
            10,
            log_start_offset=0,
            epochs=parse_leader_epochs(data.leader_epochs),
            producer_snapshot=data.producer_snapshot,
        )

    assert follower.leader_epochs.as_map() == {3: 0}
    assert follower.log_end_offset == follower.local_log_start_offset == 10
    assert follower.log_start_offset == 0
    again = await follower.append(
        client_batch(10, producer_id=7, epoch=2, sequence=0), leader_epoch=3
    )
    assert (again.duplicate, again.first_offset) == (True, 0)


@pytest.mark.parametrize("clean", [True, False])
async def test_nothing_is_saved_at_the_very_beginning(workshop: LogWorkshop, clean: bool) -> None:
    """As with Kafka: there are no producers before offset 0."""
    log = await workshop.open(clean=clean)
    assert list(log.directory.glob("*.snapshot")) == []
    await log.append(client_batch(10, producer_id=7, epoch=0, sequence=0), leader_epoch=0)
    again = await workshop.open(clean=clean, recovery_point=10 * clean)
    assert not (again.directory / f"{0:020d}.snapshot").exists()


async def test_a_power_cut_that_took_the_last_snapshot_does_not_take_it_from_the_copy(
    workshop: LogWorkshop,
) -> None:
    """A shutdown does not wait for snapshots to be on the disk; a log restored from the copy knew no producer."""
    log = await workshop.open()
    await log.append(client_batch(10, producer_id=7, epoch=0, sequence=0), leader_epoch=0)
    await log.roll_active()
    await log.close()
    (log.directory / f"{10:020d}.snapshot").unlink()

    again = await workshop.open(clean=True, recovery_point=10)

    async with again.segment_data(0) as data:
        assert data.producer_snapshot is not None
        (producer,) = decode_snapshot(data.producer_snapshot)
        assert (producer.producer_id, producer.last_sequence) == (7, 9)
