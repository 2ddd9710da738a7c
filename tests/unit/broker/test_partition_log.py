import asyncio
import errno
import os

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import (
    InvalidRecordError,
    InvalidTimestampError,
    LogStorageError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from aquifer_broker.log.log_values import AppendOrigin, FetchIsolation
from aquifer_core.errors import (
    CorruptRecordError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StaleLeaderEpochError,
)
from aquifer_core.formats.record_batch import TimestampType, iter_batches
from aquifer_core.formats.records import Record, encode_batch
from fixtures.broker_logs import (
    NOW_MS,
    LogWorkshop,
    batches_of,
    client_batch,
    end_marker,
    read_values,
)


async def test_appended_batches_get_offsets_and_leader_epoch_and_are_otherwise_untouched(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    sent = client_batch(3, value=b"abc")

    first = await log.append(sent, leader_epoch=7)
    second = await log.append(memoryview(bytearray(sent)), leader_epoch=7)

    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 5)
    assert first.log_append_time_ms == -1
    batches = batches_of(log.directory / "00000000000000000000.log")
    assert [batch.base_offset for batch in batches] == [0, 3]
    assert {batch.partition_leader_epoch for batch in batches} == {7}
    assert bytes(batches[1].data)[16:] == sent[16:]
    assert log.end_offset_for_epoch(7) == (7, 6)


async def test_log_append_time_replaces_timestamps_and_keeps_the_checksum_valid(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))

    info = await log.append(client_batch(2, timestamp_ms=5), leader_epoch=0)
    await log.append(client_batch(1, timestamp_ms=5), leader_epoch=0)

    assert info.log_append_time_ms == NOW_MS
    reopened = await workshop.open(name="events-0")
    assert reopened.log_end_offset == 3
    (batch, _) = batches_of(log.directory / "00000000000000000000.log")
    assert (batch.timestamp_type, batch.max_timestamp_ms) == (
        TimestampType.LOG_APPEND_TIME,
        NOW_MS,
    )


async def test_what_a_client_may_not_send_is_refused_and_leaves_no_trace(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(
        LogConfig(max_message_bytes=500, segment_bytes=400, message_timestamp_after_max_ms=1000)
    )
    good = client_batch()
    broken = bytearray(good)
    broken[-1] ^= 1
    control = end_marker(1, 0, commit=True)
    shifted = encode_batch([Record(offset=4, timestamp_ms=NOW_MS)])

    for records, error in [
        (bytes(broken), CorruptRecordError),
        (good + good, InvalidRecordError),
        (b"", InvalidRecordError),
        (good[:-1], InvalidRecordError),
        (control, InvalidRecordError),
        (shifted, InvalidRecordError),
        (client_batch(producer_id=5, epoch=0, sequence=-1), InvalidRecordError),
        (client_batch(value=b"x" * 600), RecordTooLargeError),
        (client_batch(value=b"x" * 420), RecordListTooLargeError),
        (client_batch(timestamp_ms=NOW_MS + 1001), InvalidTimestampError),
    ]:
        with pytest.raises(error):
            await log.append(records, leader_epoch=0)

    assert log.log_end_offset == 0
    assert log.size_bytes == 0


async def test_an_append_for_an_older_leader_epoch_is_refused(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(client_batch(), leader_epoch=4)

    with pytest.raises(StaleLeaderEpochError):
        await log.append(client_batch(), leader_epoch=3)


async def test_reads_start_at_the_batch_that_holds_the_offset(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(index_interval_bytes=100))
    for number in range(50):
        await log.append(client_batch(3, value=b"%d" % number), leader_epoch=0)

    for offset in range(150):
        read = await log.read(offset, 1 << 20)
        first = next(iter_batches(read.records))
        assert first.base_offset == offset - offset % 3


async def test_a_read_stops_at_the_size_and_returns_one_batch_at_least(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    size = len(client_batch(value=b"x" * 1000))
    for _ in range(4):
        await log.append(client_batch(value=b"x" * 1000), leader_epoch=0)

    assert len((await log.read(0, 2 * size + 10)).records) == 2 * size + 10
    assert len((await log.read(0, 10)).records) == size
    assert len((await log.read(0, 10, min_one_batch=False)).records) == 0
    assert len((await log.read(4, 10)).records) == 0


async def test_a_read_never_passes_the_high_watermark(workshop: LogWorkshop) -> None:
    log = await workshop.open(replicated=True)
    for _ in range(5):
        await log.append(client_batch(2), leader_epoch=0)
    log.set_high_watermark(5)

    below = await log.read(0, 1 << 20)
    everything = await log.read(0, 1 << 20, isolation=FetchIsolation.LOG_END)

    assert [batch.base_offset for batch in iter_batches(below.records)] == [0, 2]
    assert [batch.base_offset for batch in iter_batches(everything.records)] == [0, 2, 4, 6, 8]
    assert len((await log.read(6, 100)).records) == 0


async def test_offsets_outside_the_log_are_out_of_range(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(client_batch(2), leader_epoch=0)

    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRangeError):
            await log.read(offset, 100)


async def test_a_waiting_reader_wakes_when_its_offset_becomes_readable(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(replicated=True)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(log.wait_for_data(0))
        await asyncio.sleep(0)
        await log.append(client_batch(), leader_epoch=0)
        await asyncio.sleep(0)
        assert not waiting.done()
        log.set_high_watermark(1)


async def test_a_callback_is_not_called_after_it_was_withdrawn(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    calls: list[int] = []
    withdraw = log.subscribe(lambda: calls.append(log.log_end_offset))
    await log.append(client_batch(), leader_epoch=0)
    withdraw()
    withdraw()
    await log.append(client_batch(), leader_epoch=0)

    assert calls == [1]


async def test_a_follower_takes_the_leaders_bytes_with_their_offsets_and_epochs(
    workshop: LogWorkshop,
) -> None:
    leader = await workshop.open(name="leader-0")
    for epoch in (2, 2, 5):
        await leader.append(client_batch(2), leader_epoch=epoch)
    follower = await workshop.open(name="follower-0", replicated=True)

    read = await leader.read(0, 1 << 20, isolation=FetchIsolation.LOG_END)
    await follower.append(read.records, leader_epoch=5, origin=AppendOrigin.REPLICATION)

    assert follower.leader_epochs.as_map() == {2: 0, 5: 4}
    assert follower.log_end_offset == 6
    assert follower.high_watermark == 0
    name = "00000000000000000000.log"
    assert (follower.directory / name).read_bytes() == (leader.directory / name).read_bytes()


async def test_delete_records_moves_the_log_start_and_forgets_earlier_epochs(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    for epoch in (0, 1, 2):
        await log.append(client_batch(10), leader_epoch=epoch)

    assert await log.increase_log_start_offset(15, reason="test")
    assert not await log.increase_log_start_offset(12)

    assert log.log_start_offset == log.local_log_start_offset == 15
    assert log.leader_epochs.as_map() == {1: 15, 2: 20}
    with pytest.raises(OffsetOutOfRangeError):
        await log.read(14, 100)
    with pytest.raises(OffsetOutOfRangeError):
        await log.increase_log_start_offset(31)


async def test_truncation_drops_records_epochs_and_index_entries(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(index_interval_bytes=1, segment_bytes=400))
    for epoch in range(12):
        await log.append(client_batch(1, value=b"%d" % epoch), leader_epoch=epoch)
    assert log.segment_count > 2

    assert await log.truncate_to(4)
    assert not await log.truncate_to(4)

    assert log.log_end_offset == log.high_watermark == 4
    assert log.leader_epochs.as_map() == {epoch: epoch for epoch in range(4)}
    await log.append(client_batch(1, value=b"new"), leader_epoch=20)
    expected = [(number, b"%d" % number) for number in range(4)] + [(4, b"new")]
    assert await read_values(log) == expected
    reopened = await workshop.open()
    assert await read_values(reopened) == expected


async def test_a_truncated_log_goes_on_anywhere(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(remote_storage_enable=True))
    await log.append(client_batch(5), leader_epoch=0)

    await log.truncate_fully_and_start_at(1000, log_start_offset=200)
    await log.append(client_batch(2), leader_epoch=3)

    assert log.offsets.log_start_offset == 200
    assert log.offsets.local_log_start_offset == 1000
    assert log.log_end_offset == 1002
    assert (log.directory / "00000000000000001000.log").exists()
    assert not (log.directory / "00000000000000000000.log").exists()


async def test_a_disk_that_fails_takes_the_dir_offline_and_nothing_else(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await log.append(client_batch(), leader_epoch=0)
    limit = os.open("/dev/full", os.O_RDWR)
    os.dup2(limit, log._state.segments.active.log_file.descriptor)
    os.close(limit)

    with pytest.raises(LogStorageError) as failed:
        await log.append(client_batch(), leader_epoch=0)

    assert failed.value.kafka_error_code == 56
    assert workshop.guard.error is not None
    assert workshop.guard.error.errno == errno.ENOSPC
    for refused in (log.read(0, 10), log.flush(), log.append(client_batch(), leader_epoch=0)):
        with pytest.raises(LogStorageError):
            await refused


async def test_a_log_that_is_gone_refuses_whoever_still_holds_it(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.retire()

    with pytest.raises(NotLeaderError):
        await log.append(client_batch(), leader_epoch=0)
    assert workshop.guard.online
