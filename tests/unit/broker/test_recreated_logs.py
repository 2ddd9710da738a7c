"""A topic that is deleted and made again under its name is a new log, also after a crash at the wrong moment."""

import asyncio
import shutil
from pathlib import Path

from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import TOPIC_ID, client_batch, read_values

_OLD = TopicIdPartition(TOPIC_ID, "events", 0)
_NEW = TopicIdPartition(KafkaUuid(bytes(range(1, 17))), "events", 0)
_CONFIG = LogConfig(file_delete_delay_ms=0)


def _manager(*dirs: Path) -> LogManager:
    return LogManager(dirs, broker_id=1, cluster_id="cluster")


def _crashed(root: Path, into: Path) -> Path:
    """What a kill at this moment leaves on the disk."""
    return Path(shutil.copytree(root, into))


async def test_the_new_log_keeps_its_records_when_the_broker_crashes_before_the_next_checkpoint(
    tmp_path: Path,
) -> None:
    """The checkpoints of the old log, which started above what the new one has, are not the new one's."""
    async with _manager(tmp_path / "a") as manager:
        old = await manager.open_log(_OLD, _CONFIG)
        await old.append(client_batch(50), leader_epoch=0)
        await old.increase_log_start_offset(40)
        await manager.write_checkpoints()
        await manager.delete_log("events", 0)
        new = await manager.open_log(_NEW, _CONFIG)
        for number in range(10):
            await new.append(client_batch(value=b"%d" % number), leader_epoch=0)
        await new.flush()
        copy = _crashed(tmp_path / "a", tmp_path / "b")

    async with _manager(copy) as manager:
        log = await manager.open_log(_NEW, _CONFIG)

        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
        assert await read_values(log) == [(number, b"%d" % number) for number in range(10)]


async def test_a_log_made_after_a_crash_does_not_begin_where_a_deleted_one_did(
    tmp_path: Path,
) -> None:
    async with _manager(tmp_path / "a") as manager:
        old = await manager.open_log(_OLD, _CONFIG)
        await old.append(client_batch(50), leader_epoch=0)
        await old.increase_log_start_offset(40)
        await manager.write_checkpoints()
        await manager.delete_log("events", 0)
        copy = _crashed(tmp_path / "a", tmp_path / "b")

    async with _manager(copy) as manager:
        log = await manager.open_log(_NEW, _CONFIG, is_new=True)

        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert (await log.append(client_batch(), leader_epoch=0)).first_offset == 0


async def test_a_log_that_comes_back_to_a_dir_does_not_get_what_the_dir_remembers(
    tmp_path: Path,
) -> None:
    """It was moved away, then deleted and made anew where it was first."""
    first, second = tmp_path / "a", tmp_path / "b"
    async with _manager(first, second) as manager:
        old = await manager.open_log(_OLD, _CONFIG, log_dir=first)
        await old.append(client_batch(50), leader_epoch=0)
        await old.increase_log_start_offset(40)
        await manager.write_checkpoints()
        await manager.move_log("events", 0, second)
        await manager.wait_for_move("events", 0)
        await manager.delete_log("events", 0)
        new = await manager.open_log(_NEW, _CONFIG, log_dir=first)
        await new.append(client_batch(3), leader_epoch=0)
        copy = _crashed(tmp_path, tmp_path.with_name(f"{tmp_path.name}-crashed"))

    async with _manager(copy / "a", copy / "b") as manager:
        log = await manager.open_log(_NEW, _CONFIG)
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)


async def test_checkpoints_may_be_written_by_several_at_once(tmp_path: Path) -> None:
    """By the clock, and at the end of a move: they would share temporary files, and the dir went offline."""
    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_OLD, _CONFIG)
        await log.append(client_batch(50), leader_epoch=0)
        for _ in range(4):
            await asyncio.gather(*(manager.write_checkpoints() for _ in range(4)))

        assert [online for _, _, online in manager.log_dir_states()] == [True]
