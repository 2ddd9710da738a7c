from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.leader_epoch import LeaderEpochEntry
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


@pytest.mark.parametrize("damage", ["lost", "corrupt", "negative"])
async def test_a_lost_leader_epoch_checkpoint_is_rebuilt_from_the_batches(
    workshop: LogWorkshop, damage: str
) -> None:
    """From their headers alone: a log that was closed well is not recovered for it."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    before = _files(log.directory, ".log", ".index", ".timeindex", ".snapshot")
    checkpoint = log.directory / "leader-epoch-checkpoint"
    if damage == "lost":
        checkpoint.unlink()
    else:
        checkpoint.write_text("0\n1\n-1 0\n" if damage == "negative" else "0\nnonsense\n")

    again = await workshop.open(_CONFIG, clean=True, recovery_point=log.log_end_offset)

    assert len(again.leader_epochs) == 4
    assert again.leader_epochs.as_map() == log.leader_epochs.as_map()
    assert not again.lacks_leader_epochs
    await again.flush()
    assert checkpoint.read_text().splitlines()[1] == "4"
    assert _files(log.directory, ".log", ".index", ".timeindex", ".snapshot") == before


async def test_a_tiered_log_without_its_older_epochs_says_so_until_it_has_them(
    workshop: LogWorkshop,
) -> None:
    config = LogConfig(remote_storage_enable=True)
    log = await workshop.open(config)
    await log.truncate_fully_and_start_at(60, log_start_offset=5)
    await log.append(client_batch(2), leader_epoch=4)
    await log.append(client_batch(2), leader_epoch=6)
    await log.close()
    (log.directory / "leader-epoch-checkpoint").unlink()

    again = await workshop.open(config, clean=True, recovery_point=64, log_start_offset=5)

    assert again.leader_epochs.as_map() == {4: 60, 6: 62}
    assert again.lacks_leader_epochs
    older = [LeaderEpochEntry(*each) for each in ((0, 0), (2, 30), (4, 50), (5, 70), (9, 80))]
    await again.complete_leader_epochs(older)
    assert again.leader_epochs.as_map() == {0: 5, 2: 30, 4: 50, 6: 62}
    assert not again.lacks_leader_epochs
    await again.close()
    last = await workshop.open(config, clean=True, recovery_point=64, log_start_offset=5)
    assert last.leader_epochs.as_map() == {0: 5, 2: 30, 4: 50, 6: 62}
    assert not last.lacks_leader_epochs


async def test_a_tiered_log_that_is_begun_anew_may_lack_records_until_they_are_confirmed(
    workshop: LogWorkshop,
) -> None:
    """A crash before that changes nothing; without tiering nobody has them."""
    config = LogConfig(remote_storage_enable=True)
    assert not (await workshop.open(LogConfig(), name="plain-0")).may_lack_records
    assert (await workshop.open(config)).may_lack_records

    log = await workshop.open(config)
    assert log.may_lack_records
    log.update_config(LogConfig())
    assert not log.may_lack_records
    log.update_config(config)
    await log.confirm_records()
    assert not log.may_lack_records
    await log.append(client_batch(), leader_epoch=0)
    await log.close()

    assert not (await workshop.open(config, clean=True, recovery_point=1)).may_lack_records
    for path in log.directory.glob("*.log"):
        path.unlink()
    assert (await workshop.open(config, clean=True, recovery_point=1)).may_lack_records


async def test_a_tiered_log_that_loses_rolled_segments_to_damage_may_lack_records(
    workshop: LogWorkshop,
) -> None:
    """A torn end does not count: what is not rolled is not remote."""
    config = replace(_CONFIG, remote_storage_enable=True)
    log = await workshop.open(config)
    await log.confirm_records()
    await _fill(log)
    await log.close()
    first, *_, last = sorted(log.directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    assert not (await workshop.open(config)).may_lack_records

    first.write_bytes(first.read_bytes()[:-5])
    assert (await workshop.open(config)).may_lack_records


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


@pytest.mark.parametrize("clean", [True, False])
async def test_a_loaded_log_holds_no_files_open_but_its_last(
    workshop: LogWorkshop, clean: bool
) -> None:
    """A broker with more segments than a process may have files open must start."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    assert log.segment_count > 2
    await log.close()

    again = await workshop.open(_CONFIG, clean=clean)

    active = again.directory / f"{again.active_base_offset:020d}.log"
    assert _open_below(again.directory) == [str(active)]


def _open_below(directory: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return [each for each in found if each.startswith(str(directory))]
