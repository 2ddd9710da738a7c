"""A log dir that is missing is not an empty one: what it may hold is refused until it is back, or given up by name."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aquifer_broker.log.known_dirs import KNOWN_DIRS_NAME, KnownDirs
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_manager import LogManager
from aquifer_broker.log.move_notes import MOVED_FROM_NAME, MOVING_TO_NAME
from aquifer_core.errors import CorruptIndexError, InvalidConfigurationError
from aquifer_core.formats.meta_properties import parse_meta_properties
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import TOPIC_ID, client_batch, read_values

OTHER_ID = KafkaUuid(bytes(range(1, 17)))


def manager_of(*dirs: Path, lost: tuple[KafkaUuid, ...] = ()) -> LogManager:
    return LogManager(dirs, broker_id=1, cluster_id="cluster", lost_log_dirs=lost)


def partition(number: int = 0, topic_id: KafkaUuid = TOPIC_ID) -> TopicIdPartition:
    return TopicIdPartition(topic_id, "events", number)


@pytest.fixture
async def dirs(tmp_path: Path) -> tuple[Path, Path]:
    """Two log dirs that were used: partition 0 with five records in the first, 1 with three in the second."""
    first, second = tmp_path / "a", tmp_path / "b"
    async with manager_of(first, second) as manager:
        for number, (log_dir, count) in enumerate([(first, 5), (second, 3)]):
            log = await manager.open_log(partition(number), log_dir=log_dir)
            await log.append(client_batch(count), leader_epoch=0)
    return first, second


def id_of(log_dir: Path) -> KafkaUuid:
    directory_id = parse_meta_properties((log_dir / "meta.properties").read_bytes()).directory_id
    assert directory_id is not None
    return directory_id


def block(log_dir: Path) -> None:
    """Put a file in its place."""
    log_dir.rename(log_dir.with_name("away"))
    log_dir.write_text("no directory")


def unblock(log_dir: Path) -> None:
    log_dir.unlink()
    log_dir.with_name("away").rename(log_dir)


def unmount(log_dir: Path) -> None:
    """Leave an empty mount point."""
    log_dir.rename(log_dir.with_name("away"))
    log_dir.mkdir()


def remount(log_dir: Path) -> None:
    shutil.rmtree(log_dir)
    log_dir.with_name("away").rename(log_dir)


def damage(name: str) -> Callable[[Path], None]:
    """Make a file that says what the dir is unreadable."""

    def garble(log_dir: Path) -> None:
        shutil.copy(log_dir / name, log_dir.with_name("whole"))
        (log_dir / name).write_text("nonsense")

    return garble


def repair(name: str) -> Callable[[Path], None]:
    """Undo `damage`."""

    def restore(log_dir: Path) -> None:
        shutil.copy(log_dir.with_name("whole"), log_dir / name)

    return restore


@pytest.mark.parametrize(
    ("hide", "bring_back"),
    [
        pytest.param(block, unblock, id="cannot be opened"),
        pytest.param(unmount, remount, id="not mounted"),
        *(
            pytest.param(damage(name), repair(name), id=f"{name} damaged")
            for name in ("meta.properties", KNOWN_DIRS_NAME)
        ),
    ],
)
@pytest.mark.parametrize("tiered", [False, True])
async def test_what_a_missing_dir_may_hold_is_refused_until_it_is_back(
    dirs: tuple[Path, Path],
    hide: Callable[[Path], None],
    bring_back: Callable[[Path], None],
    tiered: bool,
) -> None:
    first, second = dirs
    config = LogConfig(remote_storage_enable=tiered)
    hide(first)
    for _ in range(2):
        async with manager_of(first, second) as manager:
            with pytest.raises(LogStorageError, match=str(first)):
                await manager.open_log(partition(0), config)
            with pytest.raises(LogStorageError, match=str(first)):
                manager.get("events", 0)
            there = await manager.open_log(partition(1), config)
            assert there.log_end_offset >= 3
            await there.append(client_batch(), leader_epoch=0)
            new = await manager.open_log(partition(7), config, is_new=True)
            assert new.directory.parent == second
            assert [online for *_, online in manager.log_dir_states()] == [False, True]
            assert not (second / "events-0").exists()
    bring_back(first)

    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0), config)
        assert len(await read_values(log)) == 5
        assert [online for *_, online in manager.log_dir_states()] == [True, True]
        assert (await manager.open_log(partition(8), config)).log_end_offset == 0


async def test_a_dir_taken_out_of_the_configuration_is_missing(dirs: tuple[Path, Path]) -> None:
    first, second = dirs
    async with manager_of(second) as manager:
        with pytest.raises(LogStorageError, match=str(id_of(first))):
            await manager.open_log(partition(0))
        await manager.open_log(partition(1))


async def test_a_dir_is_known_again_under_another_path(dirs: tuple[Path, Path]) -> None:
    first, second = dirs
    elsewhere = first.with_name("c")
    first.rename(elsewhere)

    async with manager_of(elsewhere, second) as manager:
        assert (await manager.open_log(partition(0))).log_end_offset == 5
        assert (await manager.open_log(partition(9))).log_end_offset == 0


async def test_a_dir_nobody_has_seen_may_hold_anything_that_is_not_new(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a directory should be")
    async with manager_of(blocked, tmp_path / "b") as manager:
        with pytest.raises(LogStorageError, match=r"may be in .*blocked"):
            await manager.open_log(partition(0))
        log = await manager.open_log(partition(1), is_new=True)
        await log.append(client_batch(), leader_epoch=0)

    with pytest.raises(InvalidConfigurationError, match="no directory can be used"):
        async with manager_of(blocked):
            pass


async def test_what_a_dir_held_that_was_given_up_goes_on_without_it(
    dirs: tuple[Path, Path],
) -> None:
    """Its path may be that of a new disk; once given up it is not taken back, whatever is in it."""
    first, second = dirs
    lost = id_of(first)
    unmount(first)
    async with manager_of(first, second, lost=(lost,)) as manager:
        log = await manager.open_log(partition(0))
        assert log.log_end_offset == 0
        await log.append(client_batch(2), leader_epoch=1)
        assert (await manager.open_log(partition(1))).log_end_offset == 3
        assert [online for *_, online in manager.log_dir_states()] == [True, True]
    assert id_of(first) != lost
    old = first.with_name("away")

    for setting in ((lost,), ()):
        async with manager_of(first, second, old, lost=setting) as manager:
            assert (await manager.open_log(partition(0))).log_end_offset == 2
            assert [online for *_, online in manager.log_dir_states()] == [True, True, False]
            assert (await manager.open_log(partition(9))).log_end_offset == 0
    assert (old / "events-0").exists()


async def test_a_disk_that_was_given_up_may_stay_broken(dirs: tuple[Path, Path]) -> None:
    first, second = dirs
    lost = id_of(first)
    block(first)
    for setting in ((lost,), ()):
        async with manager_of(first, second, lost=setting) as manager:
            assert (await manager.open_log(partition(0))).directory.parent == second


async def test_a_dir_that_can_be_used_cannot_be_given_up(dirs: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"aquifer\.lost\.log\.dirs=.*take the id"):
        async with manager_of(*dirs, lost=(id_of(dirs[0]),)):
            pass
    async with manager_of(*dirs) as manager:
        assert (await manager.open_log(partition(0))).log_end_offset == 5


async def test_a_copied_dir_is_refused(dirs: tuple[Path, Path]) -> None:
    shutil.copytree(dirs[0], dirs[0].with_name("c"))
    with pytest.raises(InvalidConfigurationError, match="one is a copy of the other"):
        async with manager_of(*dirs, dirs[0].with_name("c")):
            pass


async def test_a_partition_in_two_dirs_is_refused_with_both_named(
    dirs: tuple[Path, Path],
) -> None:
    first, second = dirs
    shutil.copytree(first / "events-0", second / "events-0")
    for _ in range(2):
        async with manager_of(first, second) as manager:
            await manager.delete_strays([partition(0), partition(1)])
            with pytest.raises(LogStorageError) as refused:
                await manager.open_log(partition(0))
            assert str(first / "events-0") in str(refused.value)
            assert str(second / "events-0") in str(refused.value)
            with pytest.raises(LogStorageError):
                manager.get("events", 0)
            assert (await manager.open_log(partition(1))).log_end_offset == 3
    shutil.rmtree(second / "events-0")

    async with manager_of(first, second) as manager:
        assert (await manager.open_log(partition(0))).log_end_offset == 5


async def test_of_two_dirs_with_a_partition_the_one_of_the_topic_counts(
    dirs: tuple[Path, Path],
) -> None:
    """The other is of an earlier topic of that name, deleted while its dir was away, and longer."""
    first, second = dirs
    block(first)
    async with manager_of(first, second) as manager:
        again = await manager.open_log(partition(0, OTHER_ID), is_new=True)
        await again.append(client_batch(2), leader_epoch=0)
    unblock(first)

    async with manager_of(first, second) as manager:
        await manager.delete_strays([partition(0, OTHER_ID), partition(1)])
        log = await manager.open_log(partition(0, OTHER_ID))
        assert (log.directory, log.log_end_offset) == (second / "events-0", 2)
    assert len(list(first.glob("events-0.*-stray"))) == 1


async def test_copies_that_nobody_is_assigned_are_all_put_aside(dirs: tuple[Path, Path]) -> None:
    first, second = dirs
    shutil.copytree(first / "events-0", second / "events-0")
    async with manager_of(first, second) as manager:
        strays = await manager.delete_strays([partition(1)])

    assert [stray.partition for stray in strays] == [0]
    assert not (first / "events-0").exists()
    assert not (second / "events-0").exists()
    assert len(list(first.parent.glob("*/events-0.*-stray"))) == 2


async def moved(dirs: tuple[Path, Path], more: int) -> Path:
    """Move partition 0, append, and return what its old directory was like when the move ended."""
    first, second = dirs
    old = first.parent / "old"
    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0), LogConfig(file_delete_delay_ms=10**9))
        await manager.move_log("events", 0, second)
        await manager.wait_for_move("events", 0)
        (left,) = first.glob("events-0.*-delete")
        shutil.copytree(left, old)
        for _ in range(more):
            await log.append(client_batch(), leader_epoch=0)
    return old


@pytest.mark.parametrize("more", [0, 3])
async def test_after_a_crash_at_the_end_of_a_move_the_log_goes_on_in_its_new_dir(
    dirs: tuple[Path, Path], more: int
) -> None:
    first, second = dirs
    old = await moved(dirs, more)
    old.rename(first / "events-0")
    assert (first / "events-0" / MOVING_TO_NAME).read_text() == str(id_of(second))
    assert (second / "events-0" / MOVED_FROM_NAME).read_text() == str(id_of(first))

    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0))
        assert log.directory == second / "events-0"
        assert len(await read_values(log)) == 5 + more
    assert len(list(first.glob("events-0.*-stray"))) == 1


async def test_a_copy_that_a_failed_move_has_left_does_not_count(dirs: tuple[Path, Path]) -> None:
    """The log went on where it was."""
    first, second = dirs
    old = await moved(dirs, 0)
    (second / "events-0").rename(first.parent / "copy")
    old.rename(first / "events-0")
    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0))
        await log.append(client_batch(2), leader_epoch=0)
    assert not (first / "events-0" / MOVING_TO_NAME).exists()
    (first.parent / "copy").rename(second / "events-0")

    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0))
        assert log.directory == first / "events-0"
        assert len(await read_values(log)) == 7


async def test_the_old_dir_of_a_move_does_not_serve_while_the_new_one_is_missing(
    dirs: tuple[Path, Path],
) -> None:
    first, second = dirs
    (await moved(dirs, 3)).rename(first / "events-0")
    second.rename(second.with_name("away"))
    second.write_text("no directory")

    async with manager_of(first, second) as manager:
        await manager.delete_strays([partition(0), partition(1)])
        with pytest.raises(LogStorageError, match="may have gone on"):
            await manager.open_log(partition(0))
    unblock(second)

    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0))
        assert len(await read_values(log)) == 8


async def test_a_topic_made_anew_does_not_wait_for_the_failed_dir_of_the_old_one(
    dirs: tuple[Path, Path],
) -> None:
    first, second = dirs
    async with manager_of(first, second) as manager:
        log = await manager.open_log(partition(0))
        await log.append(client_batch(), leader_epoch=0)
        shutil.rmtree(log.directory)
        with pytest.raises(LogStorageError):
            await log.flush()
        with pytest.raises(LogStorageError):
            await manager.open_log(partition(0))

        again = await manager.open_log(partition(0, OTHER_ID), is_new=True)
        assert again.directory == second / "events-0"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version":1,"dirs":{"x":"y"}}']
)
def test_a_damaged_list_of_dirs_is_told_from_none(content: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        KnownDirs.parse(content)


def test_a_list_of_dirs_is_read_as_it_was_written() -> None:
    known = KnownDirs(paths={TOPIC_ID: "/a", OTHER_ID: "/b,c"}, given_up=frozenset({OTHER_ID}))
    assert KnownDirs.parse(known.format()) == known
