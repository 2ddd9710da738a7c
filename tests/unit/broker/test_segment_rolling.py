from aquifer_broker.log.log_config import LogConfig
from aquifer_core.formats.offset_index import OffsetIndex, OffsetPosition
from aquifer_core.formats.time_index import TimeIndex, TimestampOffset
from fixtures.broker_logs import NOW_MS, LogWorkshop, batches_of, client_batch


async def test_indexes_follow_kafkas_rules(workshop: LogWorkshop) -> None:
    """K-6.3: no entry for the first batch; an entry once more bytes than the interval lie behind the last one."""
    batch = client_batch(2, value=b"x" * 100)
    size = len(batch)
    log = await workshop.open(LogConfig(index_interval_bytes=2 * size))
    times = [10, 30, 20, 25, 40, 40, 50, 45, 60]
    for time_ms in times:
        await log.append(
            client_batch(2, value=b"x" * 100, timestamp_ms=NOW_MS + time_ms), leader_epoch=0
        )
    await log.roll_active()

    # Batches 3 and 6 come after more than 2 * size bytes.
    index = OffsetIndex((log.directory / "00000000000000000000.index").read_bytes(), 0)
    assert list(index.entries()) == [
        OffsetPosition(7, 3 * size),
        OffsetPosition(13, 6 * size),
    ]
    # With each of them the largest timestamp so far; a last one for the roll.
    time_index = TimeIndex((log.directory / "00000000000000000000.timeindex").read_bytes(), 0)
    assert list(time_index.entries()) == [
        TimestampOffset(NOW_MS + 30, 3),
        TimestampOffset(NOW_MS + 50, 13),
        TimestampOffset(NOW_MS + 60, 17),
    ]


async def test_every_index_entry_points_at_its_batch(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(index_interval_bytes=300, segment_bytes=4000))
    for number in range(120):
        await log.append(client_batch(1 + number % 4, value=b"v" * (number % 90)), leader_epoch=0)
    await log.flush()

    for segment in log.rolled_segments():
        path = log.directory / f"{segment.base_offset:020d}.log"
        last_offset_at = {batch.position: batch.last_offset for batch in batches_of(path)}
        index = OffsetIndex(path.with_suffix(".index").read_bytes(), segment.base_offset)
        index.verify_entries()
        assert len(index) > 5
        assert all(last_offset_at[entry.position] == entry.offset for entry in index.entries())
        TimeIndex(path.with_suffix(".timeindex").read_bytes(), segment.base_offset).verify_entries()


async def test_a_log_rolls_when_the_append_does_not_fit(workshop: LogWorkshop) -> None:
    batch = client_batch(10)
    log = await workshop.open(LogConfig(segment_bytes=3 * len(batch)))
    for _ in range(7):
        await log.append(batch, leader_epoch=0)

    assert [(each.base_offset, each.end_offset) for each in log.rolled_segments()] == [
        (0, 29),
        (30, 59),
    ]
    assert len(workshop.rolled) == 2
    assert log.size_bytes == 7 * len(batch)
    assert (log.directory / "00000000000000000030.snapshot").exists()


async def test_a_log_rolls_by_the_time_between_records_not_by_the_clock(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(LogConfig(segment_ms=1000))
    await log.append(client_batch(timestamp_ms=NOW_MS - 5000), leader_epoch=0)
    workshop.clock.now += 60_000
    await log.append(client_batch(timestamp_ms=NOW_MS - 4000), leader_epoch=0)
    assert log.segment_count == 1

    await log.append(client_batch(timestamp_ms=NOW_MS - 3999), leader_epoch=0)

    assert log.segment_count == 2


async def test_a_log_rolls_when_an_index_is_full(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(index_interval_bytes=1, segment_index_bytes=12 * 3))
    for number in range(9):
        await log.append(client_batch(timestamp_ms=NOW_MS + number), leader_epoch=0)

    assert [each.base_offset for each in log.rolled_segments()] == [0, 3]
    assert log.active_base_offset == 6


async def test_rolling_an_empty_segment_changes_nothing(workshop: LogWorkshop) -> None:
    log = await workshop.open()

    assert await log.roll_active() == 0
    await log.append(client_batch(4), leader_epoch=0)
    assert await log.roll_active() == 4
    assert await log.roll_active() == 4
    assert log.segment_count == 2


async def test_flushing_rolled_segments_moves_the_recovery_point_to_the_active_one(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open()
    await log.append(client_batch(4), leader_epoch=0)
    await log.roll_active()
    await log.append(client_batch(1), leader_epoch=0)

    await log.flush_rolled()
    assert log.recovery_point == 4
    await log.flush()
    assert log.recovery_point == 5


async def test_flush_messages_one_makes_every_append_durable(workshop: LogWorkshop) -> None:
    log = await workshop.open(LogConfig(flush_messages=1))
    await log.append(client_batch(3), leader_epoch=0)

    assert log.recovery_point == 3
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
