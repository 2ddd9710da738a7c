from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from fixtures.broker_logs import NOW_MS, LogWorkshop, batch_ends, client_batch, read_values

_CONFIG = LogConfig(index_interval_bytes=200, segment_bytes=1500)


async def _fill(log: PartitionLog, count: int = 40) -> None:
    for number in range(count):
        batch = client_batch(1 + number % 3, value=b"%d" % number, timestamp_ms=NOW_MS + number)
        await log.append(batch, leader_epoch=number // 10)


def _files(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix in suffixes
    }


async def test_a_clean_log_comes_back_as_it_was(workshop: LogWorkshop) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    values, offsets = await read_values(log), log.offsets
    await log.close()
    before = _files(log.directory, ".log", ".index", ".timeindex")

    again = await workshop.open(_CONFIG, clean=True, recovery_point=offsets.log_end_offset)

    assert again.offsets == offsets
    assert await read_values(again) == values
    assert again.leader_epochs.as_map() == log.leader_epochs.as_map()
    assert again.recovery_point == offsets.log_end_offset
    assert _files(log.directory, ".log", ".index", ".timeindex") == before


async def test_lost_indexes_are_rebuilt_exactly(workshop: LogWorkshop) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    before = _files(log.directory, ".index", ".timeindex")
    for name in before:
        (log.directory / name).unlink()

    again = await workshop.open(_CONFIG, clean=True)
    await again.close()

    assert _files(log.directory, ".index", ".timeindex") == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_a_damaged_index_is_rebuilt(workshop: LogWorkshop, suffix: str) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    before = _files(log.directory, suffix)
    path = log.directory / f"00000000000000000000{suffix}"
    path.write_bytes(path.read_bytes()[:-3])

    again = await workshop.open(_CONFIG, clean=True)
    await again.close()

    assert _files(log.directory, suffix) == before


async def test_the_leader_epochs_of_unflushed_records_are_found_in_the_batches(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    assert not (log.directory / "leader-epoch-checkpoint").exists()

    again = await workshop.open(_CONFIG)

    assert again.leader_epochs.as_map() == log.leader_epochs.as_map()
    assert len(again.leader_epochs) == 4


async def test_a_damaged_leader_epoch_checkpoint_is_rebuilt_from_the_batches(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    (log.directory / "leader-epoch-checkpoint").write_text("0\nnonsense\n")

    again = await workshop.open(_CONFIG, clean=True, recovery_point=again_end(log))

    assert again.leader_epochs.as_map() == log.leader_epochs.as_map()


def again_end(log: PartitionLog) -> int:
    return log.log_end_offset


async def test_damage_in_a_middle_segment_drops_everything_behind_it(workshop: LogWorkshop) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    values = await read_values(log)
    second = log.rolled_segments()[1]
    path = log.directory / f"{second.base_offset:020d}.log"
    ends = batch_ends(path)
    content = bytearray(path.read_bytes())
    content[ends[1] + 70] ^= 0xFF
    path.write_bytes(content)

    again = await workshop.open(_CONFIG)

    kept = await read_values(again)
    assert kept == values[: len(kept)]
    assert second.base_offset < again.log_end_offset <= second.end_offset
    assert again.segment_count == 2
    await again.append(client_batch(), leader_epoch=9)
    assert (await read_values(again))[:-1] == kept


async def test_segments_below_the_recovery_point_are_not_read_again(workshop: LogWorkshop) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.flush()
    first = log.directory / "00000000000000000000.log"
    content = bytearray(first.read_bytes())
    content[100] ^= 0xFF
    first.write_bytes(content)

    again = await workshop.open(_CONFIG, recovery_point=log.recovery_point)

    assert again.log_end_offset == log.log_end_offset


async def test_leftovers_of_a_crash_are_removed(workshop: LogWorkshop) -> None:
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    for name in (
        "00000000000000000000.log.deleted",
        "leader-epoch-checkpoint.tmp",
        "00000000000000009999.index",
    ):
        (log.directory / name).write_bytes(b"x")

    await workshop.open(_CONFIG, clean=True)

    assert not [path for path in log.directory.iterdir() if path.suffix in (".deleted", ".tmp")]
    assert not (log.directory / "00000000000000009999.index").exists()


async def test_a_tiered_log_keeps_a_start_below_its_local_segments(workshop: LogWorkshop) -> None:
    """K-3.5"""
    config = LogConfig(remote_storage_enable=True)
    log = await workshop.open(config)
    await log.truncate_fully_and_start_at(500, log_start_offset=100)
    await log.append(client_batch(3), leader_epoch=0)
    await log.close()

    again = await workshop.open(config, clean=True, log_start_offset=100)
    assert (again.log_start_offset, again.local_log_start_offset) == (100, 500)
    await again.close()

    unnamed = await workshop.open(config, clean=True)
    assert (unnamed.log_start_offset, unnamed.local_log_start_offset) == (0, 500)
    await unnamed.close()

    untiered = await workshop.open(LogConfig(), clean=True, log_start_offset=100)
    assert (untiered.log_start_offset, untiered.local_log_start_offset) == (500, 500)


async def test_a_log_that_ends_below_its_start_begins_anew_there(workshop: LogWorkshop) -> None:
    log = await workshop.open()
    await log.append(client_batch(3), leader_epoch=0)
    await log.close()

    again = await workshop.open(clean=True, log_start_offset=50)

    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert (await again.append(client_batch(), leader_epoch=1)).first_offset == 50


async def test_the_high_watermark_of_the_checkpoint_holds_until_replication_moves_it(
    workshop: LogWorkshop,
) -> None:
    log = await workshop.open(replicated=True)
    await log.append(client_batch(10), leader_epoch=0)
    await log.close()

    again = await workshop.open(clean=True, replicated=True, high_watermark=6)

    assert again.high_watermark == 6
