"""Local remote indexes follow what is remote (SR-17, SR-21, SR-33)."""

import asyncio
import os
from pathlib import Path

import pytest
from aquifer_core.leader_epoch import LeaderEpochEntry
from aquifer_core.segment import RemoteLogSegmentMetadata
from aquifer_manager.domain.assignment import PartitionRole
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.remote_index import RemoteIndex
from aquifer_manager.domain.segment_deletion import SegmentDeletion
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_manager.domain.topic_config import TopicConfig
from fixtures.manager_tasks import TIP, TaskWorld
from fixtures.manager_world import Fault, SimulatedLog


@pytest.fixture
def world(tmp_path: Path) -> TaskWorld:
    made = TaskWorld()
    made.index_directory = tmp_path
    made.restart()
    return made


async def covered(world: TaskWorld) -> list[tuple[int, int]]:
    """(first, last) offset of every segment of the local index, from the log start on."""

    def look(index: RemoteIndex) -> list[tuple[int, int]]:
        found, offset = [], index.start_offset
        while offset is not None and (at := index.find_by_offset(offset)) is not None:
            found.append((at.first_offset, at.last_offset))
            offset = at.last_offset + 1
        return found

    answer = await world.indexes.read(TIP, look)
    assert answer is not None
    return answer


async def updated(world: TaskWorld) -> list[tuple[int, int]]:
    """The index when nothing is left to do."""
    for _ in range(20):
        await world.indexes.update()
        if not world.indexes.behind:
            return await covered(world)
    raise AssertionError("the index is still behind")


def asked(world: TaskWorld) -> int:
    return world.storage.calls.count("fetch_index")


async def test_a_leader_appends_what_it_copies_without_asking_the_store(world: TaskWorld) -> None:
    """SR-33: entries are appended locally after a copy; the copy's answer has them."""
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    assert await updated(world) == [(0, 99), (100, 199), (200, 299)]
    world.roll(log, 1)
    await world.copy()
    assert await updated(world) == [(0, 99), (100, 199), (200, 299), (300, 399)]
    assert asked(world) == 0


async def test_what_others_copied_is_fetched_from_the_store(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    world.restart()
    world.leading()
    world.roll(log, 1)
    await world.copy()
    assert (await updated(world))[0] == (0, 99)
    assert (await updated(world))[-1] == (300, 399)
    assert asked(world) == 3


async def test_an_index_outlives_its_process(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    await updated(world)
    world.restart()
    world.leading()
    await world.copy()
    assert await updated(world) == [(0, 99), (100, 199), (200, 299)]
    assert asked(world) == 0


async def test_a_follower_builds_its_index_from_the_store(world: TaskWorld) -> None:
    """SR-21, SR-33: what its own lineage holds, from the log start that the leader recorded."""
    leader = world.leading()
    world.roll(leader, 4)
    await world.copy()
    world.restart()
    log = world.follower_broker.add(SimulatedLog(TIP, leader=False))
    log.roll(4)
    role = PartitionRole(topic_id_partition=TIP, leader_epoch=0, config=TopicConfig())
    world.registry.follow(2, [role])
    await world.metadata.update_earliest_log_offset(TIP, 100, 0)
    await world.follower_task.run(TaskKey(TIP, TaskType.FOLLOWER, 2))
    assert await updated(world) == [(100, 199), (200, 299), (300, 399)]
    assert asked(world) == 3


async def test_files_below_the_log_start_go(world: TaskWorld) -> None:
    """SR-17: local indexes are cleaned up to the earliest offset."""
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    await updated(world)
    log.log_start_offset = log.local_log_start_offset = 300
    await world.copy()
    assert await updated(world) == []
    world.roll(log, 1)
    await world.copy()
    assert await updated(world) == [(300, 399)]


async def test_after_an_unclean_election_the_new_lineage_counts(world: TaskWorld) -> None:
    """K-3.2: the new leader's log parted from the copied one within a segment."""
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    await updated(world)
    log.epochs = (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 150))
    log.log_end_offset = log.last_stable_offset = 150
    log.highest_remote_offset = 149
    log.segments = log.segments[:1]
    world.leading(epoch=1)
    await world.copy()
    assert await updated(world) == [(0, 99), (100, 149)]


async def test_a_hole_is_passed(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 5)
    await world.copy()
    segments = [each async for each in world.metadata.list_remote_log_segments(TIP)]
    for each in segments[1:3]:
        await delete(world, each)
    world.restart()
    world.leading()
    await world.copy()
    assert await updated(world) == [(300, 399), (400, 499)]


async def delete(world: TaskWorld, segment: RemoteLogSegmentMetadata) -> None:
    deletion = SegmentDeletion(
        world.storage, world.metadata, world.failures, clock=world.clock, telemetry=NoTelemetry()
    )
    await deletion.delete(segment, reason="test", broker_id=1, leader_epoch=0)


async def test_a_store_that_fails_delays_the_index_and_nothing_else(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 2)
    await world.copy()
    world.restart()
    world.leading()
    await world.copy()
    world.faults.inject("fetch_index", Fault(times=2))
    await world.indexes.update()
    assert world.indexes.behind == 1
    await world.indexes.update()
    assert asked(world) == 0, "it is not asked again before the pause is over"
    await world.clock.advance(10.0)
    await world.indexes.update()
    await world.clock.advance(10.0)
    assert await updated(world) == [(0, 99), (100, 199)]


def damage(directory: Path) -> None:
    [path] = directory.rglob("*.remoteSegments")
    path.write_bytes(b"\x7f" * 200)


async def test_a_damaged_index_is_built_again(world: TaskWorld, tmp_path: Path) -> None:
    log = world.leading()
    world.roll(log, 2)
    await world.copy()
    await updated(world)
    damage(tmp_path)
    assert await world.indexes.read(TIP, lambda index: index.find_by_offset(0)) is None
    assert world.indexes.behind == 1
    assert await updated(world) == [(0, 99), (100, 199)]
    assert asked(world) == 2


async def test_readers_of_a_partition_that_others_tend_have_an_index_too(world: TaskWorld) -> None:
    """Fetches go to any manager, tasks run at one."""
    log = world.leading()
    world.roll(log, 3)
    await world.copy()
    world.restart()
    world.indexes.is_read(TIP, log.epochs, 250)
    assert await updated(world) == [(0, 99), (100, 199), (200, 299)]


async def test_nothing_is_written_while_nothing_is_remote(world: TaskWorld, tmp_path: Path) -> None:
    world.leading()
    await world.copy()
    await world.indexes.update()
    assert world.indexes.behind == 0
    assert os.listdir(tmp_path) == []


async def test_what_fails_while_it_is_cancelled_is_opened_anew(world: TaskWorld) -> None:
    """What it left on the disk must not be appended to; a reader that only gives up costs nobody anything."""
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    await updated(world)
    loop = asyncio.get_running_loop()
    for error in (None, OSError("the disk is full")):
        entered, leave = asyncio.Event(), asyncio.Event()

        def work(
            _: RemoteIndex,
            entered: asyncio.Event = entered,
            leave: asyncio.Event = leave,
            error: OSError | None = error,
        ) -> None:
            loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(30)
            if error is not None:
                raise error

        reading = asyncio.create_task(world.indexes.read(TIP, work))
        await entered.wait()
        reading.cancel()
        await asyncio.sleep(0)
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert world.indexes.is_at_hand(TIP) == (error is None)
    assert await covered(world) == [(0, 99)]
    assert world.indexes.is_at_hand(TIP)


def make_old(directory: Path) -> None:
    for path in directory.rglob("*"):
        os.utime(path, (0, 0))


async def test_a_quiet_partition_keeps_its_index_and_a_forgotten_one_loses_it(
    world: TaskWorld, tmp_path: Path
) -> None:
    """A week without a record is no reason to build it again; a week without anybody who asks is."""
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    await updated(world)
    make_old(tmp_path)
    world.restart()
    await world.indexes.update()
    world.leading()
    await world.copy()
    await world.clock.advance(4000.0)
    assert await updated(world) == [(0, 99)]
    assert asked(world) == 0
    make_old(tmp_path)
    await world.clock.advance(8 * 24 * 3600.0)
    await world.indexes.update()
    assert os.listdir(tmp_path / "remote-log-index") == []


async def test_a_reader_that_gives_up_leaves_no_thread_with_the_files(world: TaskWorld) -> None:
    log = world.leading()
    world.roll(log, 1)
    await world.copy()
    await updated(world)
    loop = asyncio.get_running_loop()
    entered, leave, left = asyncio.Event(), asyncio.Event(), []

    def slow(index: RemoteIndex) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(30)
        left.append(index.end_offset)

    reading = asyncio.create_task(world.indexes.read(TIP, slow))
    await entered.wait()
    reading.cancel()
    waiting = asyncio.create_task(covered(world))
    await asyncio.sleep(0)
    leave.set()
    assert await waiting == [(0, 99)]
    assert left == [99]
    assert reading.cancelled()
