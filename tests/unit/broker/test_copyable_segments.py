"""What is offered for copying to remote storage would survive a power cut here (decision 27)."""

import os
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from aquifer_core.ids import TopicIdPartition
from fixtures.broker_logs import TOPIC_ID, LogWorkshop, client_batch
from fixtures.held_disk import HeldCall
from fixtures.polling import eventually

_TIP = TopicIdPartition(TOPIC_ID, "events", 0)
_CONFIG = LogConfig(remote_storage_enable=True)


def _manager(directory: Path) -> LogManager:
    return LogManager([directory], broker_id=1, cluster_id="cluster")


async def test_a_rolled_segment_is_offered_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[TopicIdPartition] = []
    async with _manager(tmp_path) as manager:
        manager.on_rolled(told.append)
        log = await manager.open_log(_TIP, _CONFIG)
        await log.append(client_batch(5), leader_epoch=0)
        held = HeldCall(monkeypatch, "fdatasync", lambda path: path.endswith(".log"))
        await log.roll_active()
        await held.wait_reached()

        assert len(log.rolled_segments()) == 1
        assert log.copyable_segments() == []
        assert told == []

        held.let_go()
        await eventually(lambda: told == [_TIP])
        assert log.copyable_segments() == log.rolled_segments()


async def test_what_a_crash_has_left_unflushed_is_offered_soon_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_TIP, _CONFIG)
        await log.append(client_batch(5), leader_epoch=0)
        await log.roll_active()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / name).unlink()
    held = HeldCall(monkeypatch, "fdatasync", lambda path: path.endswith(".log"))

    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_TIP, _CONFIG)
        await held.wait_reached()
        assert log.copyable_segments() == []
        held.let_go()
        await eventually(lambda: len(log.copyable_segments()) == 1)


async def test_segments_reach_the_disk_in_their_order(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut during the flush of a shutdown left a hole: later records were there, earlier ones were not."""
    order: list[str] = []
    fdatasync = os.fdatasync

    def noting(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fdatasync(descriptor)

    log = await workshop.open(LogConfig(index_interval_bytes=100))
    for _ in range(5):
        await log.append(client_batch(), leader_epoch=0)
    await log.flush()
    # Nothing that an index has to tell.
    await log.append(client_batch(), leader_epoch=0)
    await log.roll_active()
    await log.append(client_batch(), leader_epoch=0)
    monkeypatch.setattr(os, "fdatasync", noting)
    await log.close()

    assert order == ["00000000000000000000.log", "00000000000000000006.log"]
