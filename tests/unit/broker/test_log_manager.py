import errno
import shutil
from pathlib import Path

import pytest
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_maintenance import LogManagerSettings
from aquifer_broker.log.log_manager import LogManager
from aquifer_core.errors import InvalidConfigurationError, NotLeaderError
from aquifer_core.formats.meta_properties import parse_meta_properties
from aquifer_core.formats.offset_checkpoint import parse_offsets
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import TOPIC_ID, client_batch, read_values
from fixtures.polling import eventually
from fixtures.power_cut import PowerCut

_OTHER_ID = KafkaUuid(bytes(range(1, 17)))


def _manager(*dirs: Path, **changes: object) -> LogManager:
    return LogManager(dirs, broker_id=1, cluster_id="cluster", **changes)  # type: ignore[arg-type]


def _partition(partition: int = 0, topic_id: KafkaUuid = TOPIC_ID) -> TopicIdPartition:
    return TopicIdPartition(topic_id, "events", partition)


def _named(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


async def test_a_clean_restart_finds_every_log_as_it_was(tmp_path: Path) -> None:
    async with _manager(tmp_path) as manager:
        for partition in range(3):
            log = await manager.open_log(_partition(partition))
            await log.append(client_batch(partition + 1), leader_epoch=4)
        await log.increase_log_start_offset(2)

    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "events-1" / "partition.metadata").read_text() == (
        f"version: 0\ntopic_id: {TOPIC_ID}"
    )
    for name, offset in [
        ("recovery-point-offset-checkpoint", 3),
        ("replication-offset-checkpoint", 3),
        ("log-start-offset-checkpoint", 2),
    ]:
        assert parse_offsets((tmp_path / name).read_bytes())["events", 2] == offset
    async with _manager(tmp_path) as manager:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        log = await manager.open_log(_partition(2))
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)
        assert await manager.open_log(_partition(2)) is log
        assert manager.get("events", 0) is None
        assert manager.get("events", 2) is log


async def test_a_log_that_was_not_opened_keeps_its_checkpoints(tmp_path: Path) -> None:
    async with _manager(tmp_path) as manager:
        for partition in range(2):
            log = await manager.open_log(_partition(partition))
            await log.append(client_batch(5), leader_epoch=0)
            await log.increase_log_start_offset(3)

    async with _manager(tmp_path) as manager:
        await manager.open_log(_partition(0))

    assert (tmp_path / ".kafka_cleanshutdown").exists()
    async with _manager(tmp_path) as manager:
        assert (await manager.open_log(_partition(1))).log_start_offset == 3


async def test_checkpoints_are_written_while_the_broker_runs(tmp_path: Path) -> None:
    settings = LogManagerSettings(checkpoint_interval_ms=20)
    async with _manager(tmp_path, settings=settings) as manager:
        log = await manager.open_log(_partition())
        await log.append(client_batch(5), leader_epoch=0)
        path = tmp_path / "replication-offset-checkpoint"
        await eventually(lambda: parse_offsets(path.read_bytes()).get(("events", 0)) == 5)


async def test_rolled_segments_are_flushed_soon_and_listeners_are_told(tmp_path: Path) -> None:
    rolled: list[TopicIdPartition] = []
    async with _manager(tmp_path) as manager:
        manager.on_rolled(rolled.append)
        log = await manager.open_log(_partition())
        await log.append(client_batch(5), leader_epoch=0)
        await log.roll_active()
        await eventually(lambda: log.recovery_point == 5)

    assert rolled == [_partition()]


async def test_retention_runs_by_itself(tmp_path: Path) -> None:
    settings = LogManagerSettings(retention_check_interval_ms=20)
    config = LogConfig(retention_bytes=0, file_delete_delay_ms=0)
    async with _manager(tmp_path, settings=settings) as manager:
        log = await manager.open_log(_partition(), config)
        await log.append(client_batch(5), leader_epoch=0)
        await eventually(lambda: log.log_start_offset == 5)
        await eventually(lambda: not list(log.directory.glob("*.deleted")))
        assert manager.seconds_since_success()["log_retention"] < 10


async def test_logs_are_spread_over_the_dirs(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    async with _manager(first, second) as manager:
        logs = [await manager.open_log(_partition(partition)) for partition in range(4)]
        placed = await manager.open_log(_partition(9), log_dir=second)
        states = manager.log_dir_states()

    assert sorted(log.directory.parent for log in logs) == [first, first, second, second]
    assert placed.directory.parent == second
    assert [(path, online) for path, _, online in states] == [(first, True), (second, True)]
    for path, directory_id, _ in states:
        meta = parse_meta_properties((path / "meta.properties").read_bytes())
        assert (meta.node_id, meta.cluster_id, meta.directory_id) == (1, "cluster", directory_id)


async def test_a_dir_of_another_broker_or_in_use_is_refused(tmp_path: Path) -> None:
    async with _manager(tmp_path):
        pass
    other = LogManager([tmp_path], broker_id=2, cluster_id="cluster")

    with pytest.raises(InvalidConfigurationError, match="belongs to broker 1"):
        async with other:
            pass


async def test_a_deleted_log_goes_at_once_and_its_files_later(tmp_path: Path) -> None:
    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_partition(), LogConfig(file_delete_delay_ms=0))
        await log.append(client_batch(5), leader_epoch=0)

        await manager.delete_log("events", 0)
        await manager.delete_log("events", 0)

        assert manager.get("events", 0) is None
        with pytest.raises(NotLeaderError):
            await log.append(client_batch(), leader_epoch=0)
        again = await manager.open_log(_partition(topic_id=_OTHER_ID))
        assert again.log_end_offset == 0
        await eventually(lambda: not list(tmp_path.glob("*-delete")))


async def test_a_log_of_an_earlier_topic_of_the_same_name_is_not_taken_over(tmp_path: Path) -> None:
    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_partition())
        await log.append(client_batch(5), leader_epoch=0)
    async with _manager(tmp_path) as manager:
        log = await manager.open_log(_partition(topic_id=_OTHER_ID))
        assert log.log_end_offset == 0
        other = await manager.open_log(_partition(topic_id=TOPIC_ID))
        assert (other.log_end_offset, other.topic_id_partition.topic_id) == (0, TOPIC_ID)


async def test_strays_are_put_aside_and_kept(tmp_path: Path) -> None:
    async with _manager(tmp_path) as manager:
        for partition in range(3):
            await manager.open_log(_partition(partition))

    async with _manager(tmp_path) as manager:
        strays = await manager.delete_strays([_partition(0), _partition(1, _OTHER_ID)])
        await manager.open_log(_partition(0))

    assert {stray.partition for stray in strays} == {1, 2}
    assert len(_named(tmp_path, "events-*-stray")) == 2
    assert (tmp_path / "events-0").exists()


async def test_a_failed_dir_takes_only_its_own_logs_down(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    offline: list[Path] = []
    async with _manager(first, second) as manager:
        manager.on_log_dir_offline(offline.append)
        bad = await manager.open_log(_partition(0), log_dir=first)
        good = await manager.open_log(_partition(1), log_dir=second)
        await bad.append(client_batch(5), leader_epoch=0)
        shutil.rmtree(bad.directory)

        with pytest.raises(LogStorageError):
            await bad.flush()

        with pytest.raises(LogStorageError):
            manager.get("events", 0)
        assert (await good.append(client_batch(), leader_epoch=0)).first_offset == 0
        assert list(manager.logs()) == [good]
        assert (await manager.open_log(_partition(5))).directory.parent == second

    assert offline == [first]
    assert not (first / ".kafka_cleanshutdown").exists()
    assert (second / ".kafka_cleanshutdown").exists()


def test_kafkas_storage_error_is_what_clients_see() -> None:
    assert LogStorageError("offline").kafka_error_code == 56
    assert errno.ENOSPC == 28


async def test_a_log_dir_that_the_broker_has_made_survives_a_power_cut(tmp_path: Path) -> None:
    """With what was flushed in it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with PowerCut() as power:
        async with _manager(disk / "kafka" / "logs") as manager:
            log = await manager.open_log(_partition())
            await log.append(client_batch(value=b"kept"), leader_epoch=0)
            await log.flush()
            power.leave(disk, tmp_path / "left")

    left = tmp_path / "left" / "kafka" / "logs"
    async with _manager(left) as manager:
        assert await read_values(await manager.open_log(_partition())) == [(0, b"kept")]
