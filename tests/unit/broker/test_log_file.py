import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_file import LogFile
from fixtures.polling import eventually

_CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LogFile]:
    made = LogFile(tmp_path / "0.log", create=True)
    made.append([_CONTENT], len(_CONTENT))
    yield made
    made.close()


def _evict(file: LogFile) -> None:
    os.fsync(file.descriptor)
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    ("position", "size"),
    [(0, 10), (4095, 2), (100_000, 500_000), (0, 1 << 20), (1_048_570, 100), (1 << 20, 5)],
)
async def test_reads_are_the_same_whether_the_page_cache_has_them_or_not(
    file: LogFile, cached: bool, position: int, size: int
) -> None:
    if not cached:
        _evict(file)

    assert bytes(await file.read(position, size)) == _CONTENT[position : position + size]


async def test_a_file_system_that_cannot_tell_is_read_plainly(file: LogFile) -> None:
    LogFile._nowait_supported = False
    try:
        assert bytes(await file.read(10, 20)) == _CONTENT[10:30]
    finally:
        LogFile._nowait_supported = hasattr(os, "RWF_NOWAIT")


def test_many_pieces_are_one_append(file: LogFile) -> None:
    pieces = [bytes([number % 256]) * 3 for number in range(3000)]

    assert file.append(pieces, 9000) == len(_CONTENT)
    assert file.read_now(len(_CONTENT), 10_000) == b"".join(pieces)


def test_a_pinned_file_stays_readable_until_the_last_pin_goes(file: LogFile) -> None:
    with file.pinned() as outer:
        with file.pinned() as inner:
            file.close()
            file.path.unlink()
            assert os.pread(inner, 5, 0) == _CONTENT[:5]
        assert os.pread(outer, 5, 0) == _CONTENT[:5]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(outer)


async def test_disk_work_is_waited_for_even_when_its_caller_is_cancelled() -> None:
    steps: list[str] = []
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        steps.append("begun")
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)
        steps.append("done")

    task = asyncio.create_task(on_disk(work))
    await eventually(lambda: steps)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["begun", "done"]
