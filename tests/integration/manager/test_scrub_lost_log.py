"""A segment whose log is gone from the store is missing, although its manifest is there: every scrub notices (T17)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aquifer_manager.domain.ports import NoTelemetry
from aquifer_manager.domain.scrub_task import ScrubTask
from aquifer_manager.domain.tasks import TaskKey, TaskType
from aquifer_storage.adapters.filesystem import FilesystemObjectStore
from aquifer_storage.domain.options import StorageOptions
from aquifer_storage.domain.remote_storage import RemoteStorage
from fixtures.manager_tasks import TIP, TaskWorld

_KEY = TaskKey(TIP, TaskType.SCRUB)


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[TaskWorld]:
    """Three segments in a store of files, copied."""
    world = TaskWorld()
    files = FilesystemObjectStore(tmp_path)
    await files.check()
    storage = RemoteStorage(files, options=StorageOptions(), writer_version="1")
    world.storage = storage  # type: ignore[assignment]
    world.restart()
    world.roll(world.leading(), 3)
    await world.copy()
    await world.clock.sleep(120)
    yield world
    await storage.close()


def scrubber(world: TaskWorld) -> ScrubTask:
    return ScrubTask(
        world.storage,
        world.metadata,
        world.healing,
        clock=world.clock,
        telemetry=NoTelemetry(),
        grace_ms=60_000,
    )


def lose(root: Path, pattern: str) -> None:
    [log] = root.rglob(pattern)
    log.unlink()


def count(root: Path, pattern: str) -> int:
    return len(list(root.rglob(pattern)))


@pytest.mark.parametrize("deep", [True, False])
async def test_a_lost_log_is_missing_and_copied_again(
    stored: TaskWorld, tmp_path: Path, deep: bool
) -> None:
    assert (await scrubber(stored).run(_KEY, deep=deep)).actions == ()
    lose(tmp_path, f"{100:020d}-*.log")
    [found] = (await scrubber(stored).run(_KEY, deep=deep)).actions
    assert (found.action.value, found.segment.start_offset) == ("missing", 100)
    [healed] = (await scrubber(stored).run(_KEY, deep=deep, heal=True)).actions
    assert healed.healed
    assert (await scrubber(stored).run(_KEY)).actions == ()
    assert await stored.finished() == [(0, 99), (100, 199), (200, 299)]
    assert count(tmp_path, "*.manifest") == 3


async def test_an_orphan_is_not_removed_for_a_segment_whose_log_is_lost(
    stored: TaskWorld, tmp_path: Path
) -> None:
    """Also when only the listing was looked at: the orphan is the only copy."""
    log = stored.broker.logs[TIP]
    log.segments, log.local_log_start_offset = log.segments[2:], 200
    [segment] = [
        each
        async for each in stored.metadata.list_remote_log_segments(TIP)
        if each.start_offset == 100
    ]
    orphan = stored._segment(100, 199)
    await stored.storage.copy_log_segment_data(orphan.metadata(), orphan.data())
    lose(tmp_path, f"*{segment.segment_id.id}.log")
    found = (await scrubber(stored).run(_KEY, deep=False, heal=True)).actions
    assert sorted((each.action.value, each.healed) for each in found) == [
        ("extra", False),
        ("missing", False),
    ]
    assert count(tmp_path, "*.log") == 3
