import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from aquifer_broker.log.log_values import AppendInfo, AppendOrigin, FetchIsolation
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.log.producer_entry import is_next_sequence
from aquifer_core.formats.producer_snapshot import decode_snapshot
from aquifer_core.formats.transaction_index import decode_entries
from fixtures.broker_logs import LogWorkshop, client_batch, end_marker, read_values


async def _send(
    log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = 9
) -> AppendInfo:
    batch = client_batch(count, producer_id=pid, epoch=epoch, sequence=sequence)
    return await log.append(batch, leader_epoch=0)


async def _send_in_txn(log: PartitionLog, sequence: int, count: int = 1, *, pid: int) -> AppendInfo:
    batch = client_batch(count, producer_id=pid, epoch=0, sequence=sequence, transactional=True)
    return await log.append(batch, leader_epoch=0)


async def _end(
    log: PartitionLog, pid: int, *, commit: bool, coordinator_epoch: int = 0
) -> AppendInfo:
    marker = end_marker(pid, 0, commit=commit, coordinator_epoch=coordinator_epoch)
    return await log.append(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)


async def test_a_repeated_batch_is_answered_with_its_first_offsets(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    first = [await _send(log, sequence, 10) for sequence in range(0, 50, 10)]

    for number, sequence in enumerate(range(0, 50, 10)):
        again = await _send(log, sequence, 10)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (
            first[number].first_offset,
            first[number].last_offset,
        )
    assert log.log_end_offset == 50


async def test_a_batch_older_than_the_last_five_is_out_of_order(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    for sequence in range(6):
        await _send(log, sequence)

    with pytest.raises(OutOfOrderSequenceError):
        await _send(log, 0)


async def test_a_gap_in_the_sequence_is_refused(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await _send(log, 0, 3)

    with pytest.raises(OutOfOrderSequenceError) as refused:
        await _send(log, 4)

    assert refused.value.kafka_error_code == 45
    assert (await _send(log, 3)).first_offset == 3


async def test_an_unknown_producer_may_begin_anywhere(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    assert not (await _send(log, 77)).duplicate


async def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await _send(log, 0, 5)

    with pytest.raises(OutOfOrderSequenceError):
        await _send(log, 5, epoch=1)
    await _send(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        await _send(log, 5, epoch=0)


def test_sequences_wrap_to_zero() -> None:
    assert is_next_sequence(2**31 - 1, 0)
    assert not is_next_sequence(2**31 - 1, 2**31 - 1)
    assert is_next_sequence(-1, 0)


async def test_duplicates_are_known_after_a_restart_and_after_a_crash(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await _send(log, 0, 5)
    await log.roll_active()
    await _send(log, 5, 5)
    await log.flush()

    crashed = await workshop.open(name="events-0")
    assert (await _send(crashed, 5, 5)).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        await _send(crashed, 11)

    await crashed.close()
    restarted = await workshop.open(clean=True)
    assert (await _send(restarted, 5, 5)).first_offset == 5
    assert (await _send(restarted, 10)).first_offset == 10


async def test_the_snapshot_of_a_roll_describes_everything_below_its_offset(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await _send(log, 0, 5)
    await _send(log, 0, 2, pid=3, epoch=7)
    await log.roll_active()
    await _send(log, 5, 5)

    entries = decode_snapshot((log.directory / "00000000000000000007.snapshot").read_bytes())

    found = {each.producer_id: each for each in entries}
    assert (found[9].last_sequence, found[9].last_offset, found[9].offset_delta) == (4, 4, 4)
    assert (found[3].producer_epoch, found[3].last_sequence, found[3].last_offset) == (7, 1, 6)


async def test_open_transactions_hold_back_the_last_stable_offset(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(client_batch(2), leader_epoch=0)
    await _send_in_txn(log, 0, 3, pid=1)
    await _send_in_txn(log, 0, 3, pid=2)
    assert log.last_stable_offset == 2

    await _end(log, 1, commit=True)
    assert log.last_stable_offset == 5
    await _end(log, 2, commit=False)
    assert log.last_stable_offset == log.high_watermark == 10


async def test_a_marker_above_the_high_watermark_decides_nothing_yet(workshop: LogWorkshop) -> None:
    log = await workshop.open(replicated=True)
    await _send_in_txn(log, 0, 3, pid=1)
    await _end(log, 1, commit=True)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 0

    log.set_high_watermark(4)
    assert log.last_stable_offset == 4


async def test_readers_of_committed_records_learn_of_aborted_transactions(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await _send_in_txn(log, 0, 2, pid=1)
    await _send_in_txn(log, 0, 2, pid=2)
    await _end(log, 1, commit=False)
    await log.roll_active()
    await _send_in_txn(log, 2, 2, pid=2)
    await _end(log, 2, commit=False)
    await log.append(client_batch(1), leader_epoch=0)

    read = await log.read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert read.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in read.aborted_transactions] == [
        (1, 0),
        (2, 2),
    ]
    assert (await log.read(0, 1 << 20)).aborted_transactions is None
    entries = list(decode_entries((log.directory / "00000000000000000000.txnindex").read_bytes()))
    assert [(each.last_offset, each.last_stable_offset) for each in entries] == [(4, 2)]
    assert [each.has_transactions for each in log.rolled_segments()] == [True]


async def test_recovery_rebuilds_transaction_indexes_and_open_transactions(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(LogConfig())
    await _send_in_txn(log, 0, 2, pid=1)
    await _end(log, 1, commit=False)
    await _send_in_txn(log, 0, 2, pid=2)
    index = (log.directory / "00000000000000000000.txnindex").read_bytes()

    recovered = await workshop.open()

    assert (log.directory / "00000000000000000000.txnindex").read_bytes() == index
    assert recovered.last_stable_offset == 3
    assert [each.current_txn_start_offset for each in recovered.active_producers()] == [-1, 3]


async def test_a_coordinator_that_was_replaced_may_not_write_markers(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await _send_in_txn(log, 0, pid=1)
    await _end(log, 1, commit=True, coordinator_epoch=5)

    with pytest.raises(TransactionCoordinatorFencedError):
        await _end(log, 1, commit=True, coordinator_epoch=4)


async def test_a_plain_batch_inside_a_transaction_is_refused(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await _send_in_txn(log, 0, pid=9)

    with pytest.raises(InvalidTxnStateError):
        await _send(log, 1)


async def test_silent_producers_are_forgotten_unless_a_transaction_is_open(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await _send(log, 0, pid=1)
    await _send_in_txn(log, 0, pid=2)
    workshop.clock.now += 1000

    assert log.remove_expired_producers(1001) == 0
    assert log.remove_expired_producers(1000) == 1
    assert [each.producer_id for each in log.active_producers()] == [2]


async def test_truncation_takes_producer_state_back(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    for sequence in range(4):
        await _send(log, sequence)
    await log.roll_active()
    await _send(log, 4)
    await log.truncate_to(2)

    assert (await _send(log, 2)).first_offset == 2
    assert [offset for offset, _ in await read_values(log)] == [0, 1, 2]
