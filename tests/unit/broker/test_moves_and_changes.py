"""What happens to a log while it is moved to another log dir: it is not lost, and no disk is blamed for it."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.partition_log import PartitionLog
from aquifer_core.errors import RemoteResourceNotFoundError
from aquifer_core.formats.record_batch import TimestampType, patch_max_timestamp_and_type
from aquifer_core.ids import TopicIdPartition
from fixtures.broker_logs import NOW_MS, TOPIC_ID, client_batch, read_values
from fixtures.held_disk import HeldCall
from fixtures.polling import eventually

_TIP = TopicIdPartition(TOPIC_ID, "events", 0)
_CONFIG = LogConfig(
    segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1
)


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
async def manager(dirs: tuple[Path, Path]) -> AsyncIterator[LogManager]:
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as made:
        yield made


async def _append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        number = log.log_end_offset
        batch = client_batch(value=b"%d" % number, timestamp_ms=NOW_MS + number)
        await log.append(batch, leader_epoch=0)


def _online(manager: LogManager) -> list[bool]:
    return [online for _, _, online in manager.log_dir_states()]


def _end_of_copy(monkeypatch: pytest.MonkeyPatch) -> HeldCall:
    """Holds a move while its last files are written."""
    return HeldCall(monkeypatch, "fsync", lambda path: "-future/leader-epoch" in path)


async def test_what_changes_at_the_end_of_a_move_is_not_undone_by_it(
    manager: LogManager, dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records deleted by a client, and the topic's configuration."""
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 50)
    held = HeldCall(monkeypatch, "pread", lambda path: "/b/events-0/" in path)
    await manager.move_log("events", 0, dirs[1])
    await held.wait_reached()

    await log.increase_log_start_offset(30)
    manager.update_topic_config("events", replace(_CONFIG, retention_ms=1234))
    held.let_go()
    await manager.wait_for_move("events", 0)

    assert log.directory.parent == dirs[1]
    assert log.log_start_offset == 30
    assert log.leader_epochs.as_map() == {0: 30}
    assert log.config.retention_ms == 1234
    await log.flush()
    assert (log.directory / "leader-epoch-checkpoint").read_text().splitlines()[2] == "0 30"


async def test_a_producer_may_repeat_what_it_sent_before_a_move(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    """Any of its last five batches, also those below the last roll."""
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    sent = [client_batch(producer_id=7, epoch=0, sequence=sequence) for sequence in range(3)]
    for batch in sent:
        await log.append(batch, leader_epoch=0)
    await log.roll_active()
    await manager.move_log("events", 0, dirs[1])
    await manager.wait_for_move("events", 0)

    answers = [await log.append(batch, leader_epoch=0) for batch in sent]

    assert [answer.duplicate for answer in answers] == [True, True, True]


async def test_a_flush_that_waits_for_the_end_of_a_move_blames_no_disk(
    manager: LogManager, dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 5)
    held = _end_of_copy(monkeypatch)
    await manager.move_log("events", 0, dirs[1])
    await held.wait_reached()

    async with asyncio.TaskGroup() as group:
        group.create_task(log.flush())
        group.create_task(log.assign_epoch_start(3, 5))
        await asyncio.sleep(0)
        held.let_go()
    await manager.wait_for_move("events", 0)

    assert _online(manager) == [True, True]
    assert log.recovery_point == 5
    assert log.leader_epochs.as_map() == {0: 0, 3: 5}
    assert "3 5" in (dirs[1] / "events-0" / "leader-epoch-checkpoint").read_text()


async def test_retention_during_a_move_blames_no_disk_and_does_not_end_the_move(
    manager: LogManager, dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 60)
    assert log.segment_count > 3
    held = HeldCall(monkeypatch, "pwrite", lambda path: "-future/" in path)
    await manager.move_log("events", 0, dirs[1])
    await held.wait_reached()

    log.update_config(replace(_CONFIG, retention_bytes=0))
    await log.apply_local_retention()
    await _append(log, 1)
    await eventually(lambda: not list(log.directory.glob("*.deleted")), timeout_s=60)
    held.let_go()
    await manager.wait_for_move("events", 0)

    assert _online(manager) == [True, True]
    assert log.directory == dirs[1] / "events-0"
    assert await read_values(log) == [(60, b"60")]


async def test_a_file_that_is_lost_where_a_log_was_does_not_blame_the_dir_it_moves_to(
    dirs: tuple[Path, Path],
) -> None:
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as manager:
        await _append(await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0]), 60)
    async with LogManager(dirs, broker_id=1, cluster_id="cluster") as manager:
        log = await manager.open_log(_TIP, _CONFIG)
        second = log.rolled_segments()[1]
        (log.directory / f"{second.base_offset:020d}.log").unlink()

        await manager.move_log("events", 0, dirs[1])
        await manager.wait_for_move("events", 0)

        assert _online(manager) == [False, True]
        assert not list(dirs[1].glob("events*"))


async def test_a_log_with_a_long_name_moves(manager: LogManager, dirs: tuple[Path, Path]) -> None:
    """A topic's name may have 249 characters, a file's 255."""
    topic = "t" * 249
    log = await manager.open_log(TopicIdPartition(TOPIC_ID, topic, 12), _CONFIG, log_dir=dirs[0])
    await _append(log, 3)

    await manager.move_log(topic, 12, dirs[1])
    await manager.wait_for_move(topic, 12)

    assert _online(manager) == [True, True]
    assert log.directory == dirs[1] / f"{topic}-12"


async def test_a_move_that_waits_for_the_deletion_of_its_log_is_refused(
    manager: LogManager, dirs: tuple[Path, Path]
) -> None:
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 3)
    # Each of them waits for the one before.
    first = asyncio.create_task(manager.move_log("events", 0, dirs[1]))
    deletion = asyncio.create_task(manager.delete_log("events", 0))
    second = asyncio.create_task(manager.move_log("events", 0, dirs[1]))
    await asyncio.gather(first, deletion)
    with pytest.raises(RemoteResourceNotFoundError):
        await second
    await manager.wait_for_move("events", 0)

    assert _online(manager) == [True, True]


@pytest.mark.parametrize("meanwhile", ["a move", "retention"])
async def test_a_look_up_by_time_goes_on_when_the_log_changes_meanwhile(
    manager: LogManager, dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    log = await manager.open_log(_TIP, replace(_CONFIG, index_interval_bytes=0), log_dir=dirs[0])
    # The first segment promises a later time than it has: its batches say more in their headers than their records do.
    await log.append(_overstated(client_batch(timestamp_ms=NOW_MS), NOW_MS + 30), leader_epoch=0)
    await log.roll_active()
    await _append(log, 60)
    held = HeldCall(monkeypatch, "pread", lambda path: path.endswith("00000000.log"))
    search = asyncio.create_task(log.offset_for_timestamp(NOW_MS + 30))
    await held.wait_reached()

    if meanwhile == "a move":
        await manager.move_log("events", 0, dirs[1])
        await manager.wait_for_move("events", 0)
        await eventually(lambda: not list(dirs[0].glob("events*")), timeout_s=60)
    else:
        log.update_config(replace(_CONFIG, retention_bytes=log.size_bytes // 5))
        await log.apply_local_retention()
        await eventually(lambda: not list(log.directory.glob("*.deleted")), timeout_s=60)
    held.let_go()
    found = await search

    assert _online(manager) == [True, True]
    assert found is not None
    assert found.offset == max(30, log.log_start_offset)


def _overstated(batch: bytes, max_timestamp_ms: int) -> bytes:
    copy = bytearray(batch)
    patch_max_timestamp_and_type(copy, 0, max_timestamp_ms, TimestampType.CREATE_TIME)
    return bytes(copy)


async def test_a_crash_while_a_move_is_given_up_at_its_end_leaves_one_log(
    manager: LogManager,
    dirs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the copy under the log's own name was taken for the log, or for one of two that nobody can choose between."""
    log = await manager.open_log(_TIP, _CONFIG, log_dir=dirs[0])
    await _append(log, 60)
    held = HeldCall(monkeypatch, "pread", lambda path: "/b/events-0/" in path)
    await manager.move_log("events", 0, dirs[1])
    await held.wait_reached()
    unlink, crashes = os.unlink, dict.fromkeys([".log", "moved-from"], False)

    def crash_after(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        for end, seen in crashes.items():
            if not seen and path.endswith(end) and dir_fd is not None:
                crashes[end] = True
                for each in dirs:
                    shutil.copytree(each, tmp_path / end / each.name)

    monkeypatch.setattr(os, "unlink", crash_after)
    back = asyncio.create_task(manager.move_log("events", 0, dirs[0]))
    await asyncio.sleep(0)
    held.let_go()
    await back
    monkeypatch.undo()

    assert await read_values(log) == [(offset, b"%d" % offset) for offset in range(60)]
    for end, seen in crashes.items():
        assert seen
        left = [tmp_path / end / each.name for each in dirs]
        async with LogManager(left, broker_id=1, cluster_id="cluster") as again:
            found = await again.open_log(_TIP, _CONFIG)
            assert await read_values(found) == [(offset, b"%d" % offset) for offset in range(60)]
