import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_broker.log.remote_check import REMOTE_CHECK_NAME
from aquifer_core.errors import InvalidConfigurationError, RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from fixtures.broker_logs import NOW_MS, TOPIC_ID, client_batch, read_values

_TIP = TopicIdPartition(TOPIC_ID, "events", 0)
_CONFIG = LogConfig(
    segment_bytes=4000,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    remote_storage_enable=True,
    retention_ms=-1,
)


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
async def manager(dirs: tuple[Path, Path]) -> AsyncIterator[LogManager]:
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as made:
        yield made


async def _append(log: PartitionLog, count: int, *, producer_id: int = -1) -> None:
    idempotent = producer_id >= 0
    for _ in range(count):
        number = log.log_end_offset
        batch = client_batch(
            value=b"%d" % number,
            timestamp_ms=NOW_MS + number,
            producer_id=producer_id,
            epoch=0 if idempotent else -1,
            sequence=number if idempotent else -1,
        )
        await log.append(batch, leader_epoch=number // 50)
        await asyncio.sleep(0)


async def test_a_log_moves_while_it_is_written_and_read(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    """SR-28"""
    first, second = dirs
    log = await manager.open_log(_TIP, _CONFIG, log_dir=first)
    await _append(log, 200, producer_id=7)
    log.update_highest_offset_in_remote_storage(150)
    await log.increase_log_start_offset(30)

    async with asyncio.TaskGroup() as group:
        group.create_task(manager.move_log("events", 0, second))
        group.create_task(_append(log, 200, producer_id=7))
    await manager.wait_for_move("events", 0)

    assert log.directory == second / "events-0"
    assert manager.get("events", 0) is log
    assert manager.future_logs() == []
    assert await read_values(log) == [(offset, b"%d" % offset) for offset in range(30, 400)]
    assert log.highest_offset_in_remote_storage == 150
    assert log.leader_epochs.as_map() == {0: 30, **{epoch: epoch * 50 for epoch in range(1, 8)}}
    again = client_batch(value=b"399", producer_id=7, epoch=0, sequence=399)
    assert (await log.append(again, leader_epoch=7)).duplicate
    found = await log.max_timestamp()
    assert found is not None
    assert found.offset == 399
    assert not (first / "events-0").exists()


async def test_a_moved_log_is_found_after_a_restart(dirs: tuple[Path, Path]) -> None:
    first, second = dirs
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as manager:
        log = await manager.open_log(_TIP, _CONFIG, log_dir=first)
        await _append(log, 120)
        await log.increase_log_start_offset(7)
        await manager.move_log("events", 0, second)
        await manager.wait_for_move("events", 0)
        await _append(log, 5)
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as manager:
        log = await manager.open_log(_TIP, _CONFIG)
        assert log.directory.parent == second
        assert (log.log_start_offset, log.log_end_offset) == (7, 125)
        assert len(await read_values(log)) == 118


async def test_retention_during_a_move_is_followed(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    first, second = dirs
    log = await manager.open_log(_TIP, _CONFIG, log_dir=first)
    await _append(log, 200)
    (second / "scratch").mkdir()
    copy = log.start_copy(second / "scratch")
    await copy.copy_new()
    assert copy.lag_bytes == 0
    await log.increase_log_start_offset(150)
    await log.apply_local_retention()
    await manager.move_log("events", 0, second)
    await manager.wait_for_move("events", 0)

    assert log.local_log_start_offset == 150
    assert not (second / "events-0" / "00000000000000000000.log").exists()


async def test_a_target_that_fails_leaves_the_log_where_it_is(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    first, second = dirs
    log = await manager.open_log(_TIP, _CONFIG, log_dir=first)
    await _append(log, 50)
    (second / "events-0").mkdir()
    (second / "events-0" / "in the way").write_text("")

    await manager.move_log("events", 0, second)
    await manager.wait_for_move("events", 0)

    assert log.directory.parent == first
    await _append(log, 5)
    assert len(await read_values(log)) == 55
    assert [online for *_, online in manager.log_dir_states()] == [True, False]
    with pytest.raises(LogStorageError):
        await manager.move_log("events", 0, second)


async def test_a_move_to_where_the_log_is_does_nothing(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await manager.move_log("events", 0, dirs[0])

    assert manager.future_logs() == []
    assert log.directory.parent == dirs[0]


async def test_unknown_logs_and_dirs_are_refused(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        await manager.move_log("events", 0, dirs[0])
    with pytest.raises(InvalidConfigurationError):
        await manager.move_log("events", 0, dirs[0].parent)


async def test_deleting_a_log_ends_its_move(manager: LogManager, dirs: tuple[Path, Path]) -> None:
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 100)
    await manager.move_log("events", 0, dirs[1])
    await manager.delete_log("events", 0)

    assert manager.get("events", 0) is None
    assert manager.future_logs() == []
    again = await manager.open_log(TopicIdPartition(TOPIC_ID, "events", 0), _CONFIG)
    assert again.log_end_offset == 0


async def test_a_log_that_may_lack_records_says_so_in_its_new_log_dir(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    first, second = dirs
    log = await manager.open_log(_TIP, _CONFIG, log_dir=first)
    assert log.may_lack_records

    await manager.move_log("events", 0, second)
    await manager.wait_for_move("events", 0)

    assert log.directory == second / "events-0"
    assert log.may_lack_records
    await log.confirm_records()
    assert not (log.directory / REMOTE_CHECK_NAME).exists()
