from collections.abc import Iterable, Iterator

import pytest
from aquifer_broker.log.local_retention import (
    LocalRetentionPolicy,
    RetentionReason,
    SegmentFacts,
    decide_local_retention,
)
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.formats.record_batch import iter_batches
from fixtures.broker_logs import NOW_MS, LogWorkshop, client_batch

_SEGMENTS = [
    SegmentFacts(0, 100, 1000, NOW_MS - 500),
    SegmentFacts(100, 200, 1000, NOW_MS - 400),
    SegmentFacts(200, 300, 1000, NOW_MS - 300),
    SegmentFacts(300, None, 400, NOW_MS - 200),
]


def _decide(
    reason: RetentionReason, segments: Iterable[SegmentFacts] = _SEGMENTS, **changes: object
) -> tuple[int, bool]:
    values: dict[str, object] = {
        "retention_ms": -1,
        "retention_bytes": -1,
        "delete": True,
        "copied_to_remote": True,
        "log_start_offset": 0,
        "start_offset": 0,
        "high_watermark": 350,
        "log_end_offset": 350,
        "highest_offset_in_remote_storage": 299,
        "size_bytes": sum(segment.size_bytes for segment in _SEGMENTS),
        **changes,
    }
    policy = LocalRetentionPolicy(**values)  # type: ignore[arg-type]
    decision = decide_local_retention(segments, policy, reason, NOW_MS)
    return decision.segments, decision.roll


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"retention_ms": 400}, (1, False)),
        ({"retention_ms": 399}, (2, False)),
        ({"retention_ms": 0}, (3, True)),
        ({"retention_ms": 0, "highest_offset_in_remote_storage": 199}, (2, False)),
        ({"retention_ms": 0, "highest_offset_in_remote_storage": 198}, (1, False)),
        ({"retention_ms": 0, "highest_offset_in_remote_storage": -1}, (0, False)),
        ({"retention_ms": 0, "high_watermark": 299}, (2, False)),
        ({"retention_ms": 0, "high_watermark": 300}, (3, False)),
        ({"retention_ms": 0, "delete": False}, (0, False)),
        ({"retention_ms": 0, "copied_to_remote": False}, (4, False)),
        ({"retention_ms": -1}, (0, False)),
        (
            {
                "retention_ms": 0,
                "highest_offset_in_remote_storage": -1,
                "log_start_offset": 250,
            },
            (2, False),
        ),
    ],
)
def test_retention_by_time(changes: dict[str, object], expected: tuple[int, bool]) -> None:
    """SR-21, K-3.5"""
    assert _decide(RetentionReason.TIME, **changes) == expected


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(3401, 0), (3400, 0), (2401, 0), (2400, 1), (1401, 1), (1400, 2), (400, 3), (0, 3), (-1, 0)],
)
def test_retention_by_size_never_cuts_below_the_limit(retention_bytes: int, expected: int) -> None:
    assert _decide(RetentionReason.SIZE, retention_bytes=retention_bytes)[0] == expected


@pytest.mark.parametrize(
    ("start", "expected"), [(0, 0), (99, 0), (100, 1), (299, 2), (300, 3), (350, 3)]
)
def test_segments_wholly_below_the_start_go(start: int, expected: int) -> None:
    found = _decide(
        RetentionReason.LOG_START_OFFSET,
        start_offset=start,
        log_start_offset=start,
        highest_offset_in_remote_storage=-1,
        delete=False,
    )
    assert found == (expected, False)


@pytest.mark.parametrize(
    ("reason", "limits"),
    [
        (RetentionReason.LOG_START_OFFSET, {"start_offset": 100}),
        (RetentionReason.SIZE, {"retention_bytes": 2400}),
        (RetentionReason.TIME, {"retention_ms": 400}),
    ],
)
def test_nothing_behind_the_first_segment_that_stays_is_looked_at(
    reason: RetentionReason, limits: dict[str, object]
) -> None:
    """Else a log of ten thousand segments would cost each pass so much more, and a pass follows copies."""

    def until_one_stays() -> Iterator[SegmentFacts]:
        yield from _SEGMENTS[:2]
        raise AssertionError("the second one stays")

    assert _decide(reason, until_one_stays(), **limits) == (1, False)


def test_an_empty_active_segment_is_neither_rolled_nor_deleted() -> None:
    segments = [SegmentFacts(0, 100, 1000, 0), SegmentFacts(100, None, 0, 0)]
    policy = LocalRetentionPolicy(
        retention_ms=0,
        retention_bytes=-1,
        delete=True,
        copied_to_remote=True,
        log_start_offset=0,
        start_offset=0,
        high_watermark=100,
        log_end_offset=100,
        highest_offset_in_remote_storage=99,
        size_bytes=1000,
    )

    decision = decide_local_retention(segments, policy, RetentionReason.TIME, NOW_MS)

    assert (decision.segments, decision.roll) == (1, False)


async def _filled(workshop: LogWorkshop, config: LogConfig) -> PartitionLog:
    log = await workshop.open(config)
    for number in range(6):
        await log.append(client_batch(10, timestamp_ms=NOW_MS + number), leader_epoch=number)
        if number < 5:
            await log.roll_active()
    workshop.clock.now = NOW_MS + 10_000
    return log


async def test_without_tiering_retention_moves_the_log_start(workshop: LogWorkshop) -> None:
    log = await _filled(workshop, LogConfig(retention_ms=9_996))

    assert await log.apply_local_retention() == 4

    assert log.log_start_offset == log.local_log_start_offset == 40
    assert log.leader_epochs.as_map() == {4: 40, 5: 50}
    assert not (log.directory / "00000000000000000030.log").exists()
    assert (log.directory / "00000000000000000030.log.deleted").exists()


async def test_when_everything_expires_a_new_segment_takes_over(workshop: LogWorkshop) -> None:
    log = await _filled(workshop, LogConfig(retention_ms=1))

    assert await log.apply_local_retention() == 6

    assert log.log_start_offset == log.log_end_offset == 60
    assert (await log.append(client_batch(), leader_epoch=6)).first_offset == 60


async def test_with_tiering_only_copied_segments_go_and_the_log_start_stays(
    workshop: LogWorkshop,
) -> None:
    """SR-21"""
    config = LogConfig(remote_storage_enable=True, local_retention_ms=1)
    log = await _filled(workshop, config)
    assert await log.apply_local_retention() == 0
    log.update_highest_offset_in_remote_storage(29)

    assert await log.apply_local_retention() == 3

    assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)
    assert log.leader_epochs.as_map() == {epoch: epoch * 10 for epoch in range(6)}


async def test_a_breaching_active_segment_is_rolled_so_that_it_can_be_copied(
    workshop: LogWorkshop,
) -> None:
    """K-3.5"""
    config = LogConfig(remote_storage_enable=True, local_retention_ms=1)
    log = await _filled(workshop, config)
    log.update_highest_offset_in_remote_storage(49)
    assert await log.apply_local_retention() == 5
    assert [each.base_offset for each in log.rolled_segments()] == [50]

    log.update_highest_offset_in_remote_storage(59)
    assert await log.apply_local_retention() == 1

    assert log.local_log_start_offset == log.log_end_offset == 60


async def test_the_highest_remote_offset_never_decreases(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    log.update_highest_offset_in_remote_storage(9)
    log.update_highest_offset_in_remote_storage(5)

    assert log.highest_offset_in_remote_storage == 9


async def test_deleted_records_free_their_segments_also_before_they_were_copied(
    workshop: LogWorkshop,
) -> None:
    log = await _filled(workshop, LogConfig(remote_storage_enable=True))
    await log.increase_log_start_offset(25)

    assert await log.apply_local_retention() == 2
    assert log.local_log_start_offset == 25


async def test_a_copy_under_way_still_reads_a_segment_that_retention_deletes(
    workshop: LogWorkshop,
) -> None:
    log = await _filled(workshop, LogConfig(retention_ms=1))
    async with log.segment_data(0) as data:
        await log.apply_local_retention()
        await workshop.cleaner.remove_all()
        pieces = b"".join([bytes(piece) async for piece in data.log_segment.chunks()])

    (batch,) = iter_batches(pieces)
    assert (batch.base_offset, batch.last_offset) == (0, 9)
    assert len(pieces) == data.log_segment.size_bytes


async def test_deleted_files_stay_until_their_delay_is_over(workshop: LogWorkshop) -> None:
    log = await _filled(workshop, LogConfig(retention_ms=9_996, file_delete_delay_ms=60_000))
    await log.apply_local_retention()
    workshop.clock.now += 59_999
    assert await workshop.cleaner.remove_due() == 0

    workshop.clock.now += 1
    assert await workshop.cleaner.remove_due() > 0
    assert not list(log.directory.glob("*.deleted"))
