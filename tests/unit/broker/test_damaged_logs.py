"""Damage on a disk that nobody has noticed at the last shutdown: a log is loaded all the same, up to where it is sound."""

from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from fixtures.broker_logs import NOW_MS, LogWorkshop, batch_ends, client_batch, read_values

_CONFIG = LogConfig(index_interval_bytes=4096, segment_bytes=1500, retention_ms=-1)


async def _fill(log: PartitionLog, count: int = 40) -> None:
    for number in range(count):
        batch = client_batch(
            1, value=b"%d" % number, timestamp_ms=NOW_MS, producer_id=7, epoch=0, sequence=number
        )
        await log.append(batch, leader_epoch=0)


def _log_files(log: PartitionLog) -> list[Path]:
    return sorted(log.directory.glob("*.log"))


@pytest.mark.parametrize("damage", ["cut short", "a bad header"])
async def test_a_damaged_end_is_cut_off_also_after_a_clean_shutdown(
    workshop: LogWorkshop, damage: str
) -> None:
    """What is appended next would be behind bytes that nobody can read over."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    values = await read_values(log)
    await log.close()
    path = _log_files(log)[-1]
    content = bytearray(path.read_bytes())
    last = batch_ends(path)[-2]
    if damage == "cut short":
        del content[-3:]
    else:
        content[last + 16] = 9
    path.write_bytes(content)

    again = await workshop.open(_CONFIG, clean=True, recovery_point=40)

    assert again.log_end_offset == 39
    assert (await again.append(client_batch(value=b"new"), leader_epoch=1)).first_offset == 39
    assert await read_values(again) == [*values[:-1], (39, b"new")]


async def test_damage_in_the_middle_does_not_keep_a_log_from_being_loaded(
    workshop: LogWorkshop,
) -> None:
    """Not even when the producers' state has to be found again from the damaged segment."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    first, second, *_ = _log_files(log)
    content = bytearray(first.read_bytes())
    content[batch_ends(first)[3] + 16] = 9
    first.write_bytes(content)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()

    again = await workshop.open(_CONFIG, clean=True, recovery_point=40)

    assert again.log_end_offset == 40
    assert [offset for offset, _ in await read_values(again, int(second.stem))][-1] == 39
    following = client_batch(producer_id=7, epoch=0, sequence=40)
    assert (await again.append(following, leader_epoch=1)).first_offset == 40


async def test_a_lost_index_does_not_cost_the_segments_behind_a_damaged_one(
    workshop: LogWorkshop,
) -> None:
    """They were closed well: only after a crash what follows damage may never have been written."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    first, second, *_ = _log_files(log)
    content = bytearray(first.read_bytes())
    content[batch_ends(first)[3] + 62] ^= 0xFF
    first.write_bytes(content)
    first.with_suffix(".index").unlink()

    again = await workshop.open(_CONFIG, clean=True, recovery_point=40)

    assert again.log_end_offset == 40
    offsets = [offset for offset, _ in await read_values(again)]
    assert offsets == [*range(4), *range(int(second.stem), 40)]


async def test_an_offset_that_cannot_be_right_is_not_taken_after_a_crash(
    workshop: LogWorkshop,
) -> None:
    """Offsets are outside the checksum of a batch."""
    log = await workshop.open(_CONFIG)
    await _fill(log)
    await log.close()
    path = _log_files(log)[-1]
    content = bytearray(path.read_bytes())
    content[batch_ends(path)[-2]] ^= 0x10
    path.write_bytes(content)

    again = await workshop.open(_CONFIG)

    assert again.log_end_offset == 39
