"""A log that goes on behind remote storage: all that belongs to it is there with it, or it is restored again (K-3.11)."""

import asyncio
import shutil
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.formats.leader_epoch_checkpoint import parse_leader_epochs
from aquifer_core.segment import LogSegmentData
from fixtures.broker_logs import LogWorkshop, client_batch
from fixtures.held_disk import HeldCall
from fixtures.power_cut import PowerCut

_CONFIG = LogConfig(remote_storage_enable=True)
_SENT = client_batch(10, producer_id=7, epoch=2, sequence=0)


async def _restart(log: PartitionLog, data: LogSegmentData) -> None:
    await log.restart_from_remote(
        10,
        log_start_offset=0,
        epochs=parse_leader_epochs(data.leader_epochs),
        producer_snapshot=data.producer_snapshot,
    )


async def _leader(workshop: LogWorkshop) -> PartitionLog:
    leader = await workshop.open(name="leader-0")
    await leader.append(_SENT, leader_epoch=3)
    await leader.roll_active()
    return leader


async def _is_whole(log: PartitionLog) -> bool:
    assert (log.log_end_offset, log.local_log_start_offset) == (10, 10)
    return (
        log.leader_epochs.as_map() == {3: 0} and (await log.append(_SENT, leader_epoch=3)).duplicate
    )


async def test_a_power_cut_after_the_restoration_takes_nothing_of_it(
    workshop: LogWorkshop,
) -> None:
    leader = await _leader(workshop)
    with PowerCut() as power:
        log = await workshop.open(_CONFIG, name="events-0")
        async with leader.segment_data(0) as data:
            await _restart(log, data)
        await log.confirm_records()
        power.leave(log.directory, workshop.root / "events-1")

    again = await workshop.open(_CONFIG, name="events-1")

    assert not again.may_lack_records
    assert await _is_whole(again)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint.tmp", ".snapshot.tmp"])
async def test_a_crash_in_the_middle_leaves_a_log_that_is_restored_again(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One that ends where it should, without its epochs and producers, would be taken for complete."""
    leader = await _leader(workshop)
    log = await workshop.open(_CONFIG, name="events-0")
    held = HeldCall(monkeypatch, "fsync", lambda path: path.endswith(name))
    async with leader.segment_data(0) as data:
        restart = asyncio.create_task(_restart(log, data))
        await held.wait_reached()
        _copy(log.directory, workshop.root / "events-1")
        held.let_go()
        await restart

    assert await _is_whole(log)
    again = await workshop.open(_CONFIG, name="events-1")
    assert again.may_lack_records
    assert again.log_end_offset == 0


def _copy(directory: Path, into: Path) -> None:
    shutil.copytree(directory, into)
