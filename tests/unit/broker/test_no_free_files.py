"""A process that may open no more files: what needs one fails for now, and no log dir is given up for it."""

import subprocess
import sys
from pathlib import Path

import pytest

_FRAME = """
import asyncio, os, resource, sys
from dataclasses import replace
from pathlib import Path
from aquifer_broker.log.log_config import LogConfig
from aquifer_broker.log.log_errors import NoFreeFileError
from aquifer_broker.log.log_manager import LogManager
from aquifer_core.ids import KafkaUuid, TopicIdPartition
from fixtures.broker_logs import client_batch, read_values

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
DIRS = [Path(sys.argv[1], each) for each in ("a", "b")]
TIP, OTHER = (TopicIdPartition(KafkaUuid(bytes(16)), "events", each) for each in (0, 1))

class AllFilesOpen:
    '''Leaves the process as many free descriptors as it says.'''
    def __init__(self, free=0):
        self.free, self.taken = free, []
    def __enter__(self):
        self.fill()
        for _ in range(self.free):
            os.close(self.taken.pop())
        return self
    def fill(self):
        try:
            while True:
                self.taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
    async def refuse(self, work):
        '''Whatever the broker's own loops have just closed is taken as well.'''
        for _ in range(100):
            self.fill()
            if await refused(work()):
                return True
    def __exit__(self, *_):
        for each in self.taken:
            os.close(each)

async def refused(work):
    try:
        await work
    except NoFreeFileError as error:
        assert "LimitNOFILE" in error.message, error
        return True
    return False

async def append(log, appended):
    value = b"%d" % len(appended)
    info = await log.append(client_batch(value=value), leader_epoch=log.latest_epoch or 0)
    appended.append((info.first_offset, value))

def manager():
    return LogManager(DIRS, broker_id=1, cluster_id="c")

def online(manager):
    return all(each for _, _, each in manager.log_dir_states())

async def main():
    appended = []
    async with manager() as logs:
        log = await logs.open_log(TIP, CONFIG, log_dir=DIRS[0], is_new=True)
        for _ in range(40):
            await append(log, appended)
    async with manager() as logs:
        log = await logs.open_log(TIP, CONFIG)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        await MEANWHILE(logs, log, appended)
        assert online(logs)
        for _ in range(40):
            await append(log, appended)
        assert await read_values(log) == appended
    async with manager() as logs:
        log = await logs.open_log(TIP, CONFIG)
        assert await read_values(log) == appended
        assert [each.end_offset + 1 for each in log.rolled_segments()] == [
            each.base_offset for each in log.rolled_segments()[1:]
        ] + [log.active_base_offset]
    print("well")
"""

_WORK = {
    "rolls": """
async def MEANWHILE(logs, log, appended):
    for free in (0, 1, 2, 3, 0, 1, 2, 3):
        await append(log, appended)
        with AllFilesOpen(free):
            for _ in range(20):
                await refused(append(log, appended))
            await refused(log.roll_active())
    with AllFilesOpen() as files:
        assert await files.refuse(lambda: append_until_rolled(log, appended))

async def append_until_rolled(log, appended):
    for _ in range(20):
        await append(log, appended)
""",
    "reads": """
async def MEANWHILE(logs, log, appended):
    with AllFilesOpen():
        assert any([await refused(log.read(each.base_offset, 1000)) for each in log.rolled_segments()])
""",
    "flushes and checkpoints": """
async def MEANWHILE(logs, log, appended):
    await append(log, appended)
    async def flush():
        await append(log, appended)
        await log.flush()
    async def assign():
        await log.assign_epoch_start(log.latest_epoch + 1, log.log_end_offset)
    with AllFilesOpen() as files:
        assert await files.refuse(flush)
        assert await files.refuse(assign)
        assert await files.refuse(logs.write_checkpoints)
    await log.flush()
    assert log.recovery_point == log.log_end_offset
""",
    "is given another log": """
async def MEANWHILE(logs, log, appended):
    for free in (0, 1, 2, 3):
        with AllFilesOpen(free):
            await refused(logs.open_log(OTHER, CONFIG, is_new=True))
    other = await logs.open_log(OTHER, CONFIG, is_new=True)
    await other.append(client_batch(value=b"other"), leader_epoch=0)
    assert await read_values(other) == [(0, b"other")]
""",
    "moves a log": """
async def MEANWHILE(logs, log, appended):
    for free in (0, 1, 2, 3):
        with AllFilesOpen(free):
            if not await refused(logs.move_log("events", 0, DIRS[1])):
                await logs.wait_for_move("events", 0)
    await logs.move_log("events", 0, DIRS[1])
    await logs.wait_for_move("events", 0)
    assert log.directory.parent == DIRS[1]
""",
    "deletes a log": """
async def MEANWHILE(logs, log, appended):
    other = await logs.open_log(OTHER, CONFIG, is_new=True)
    await other.append(client_batch(value=b"other"), leader_epoch=0)
    with AllFilesOpen(0):
        await logs.delete_log("events", 1)
    again = await logs.open_log(OTHER, CONFIG, is_new=True)
    assert again.log_end_offset == 0
""",
}


@pytest.mark.parametrize("what", _WORK)
def test_a_broker_without_a_free_file_that(tmp_path: Path, what: str) -> None:
    """Goes on when there is one again, with everything that it has confirmed, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_FRAME}{_WORK[what]}\nasyncio.run(main())", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert done.stdout.splitlines()[-1:] == ["well"], done.stdout[-5000:] + done.stderr
