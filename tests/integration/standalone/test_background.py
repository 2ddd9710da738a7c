"""What `make down` and `make status` take for the suite, and what not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aquifer_standalone.background import down, status
from aquifer_standalone.run import STATE_FILE

# A supervisor holds a lock on its folder for as long as it lives.
_SUPERVISOR = """
import asyncio, pathlib, sys
from aquifer_standalone.supervisor import Supervisor

async def main():
    async with Supervisor([], data_dir=pathlib.Path(sys.argv[1])):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
_STRANGER = "print('up', flush=True); input()"


@contextmanager
def running(program: str, data_dir: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of which the state file says that it is the suite's."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert b"up\n" in iter(process.stdout.readline, b"")
        (data_dir / STATE_FILE).write_text(json.dumps({"pid": process.pid}))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_suite_is_found_and_stopped(tmp_path: Path) -> None:
    with running(_SUPERVISOR, tmp_path) as process:
        assert status(tmp_path) == 0
        assert down(tmp_path) == 0
        assert process.poll() is not None


def test_a_process_that_has_got_the_suites_id_is_left_alone(tmp_path: Path) -> None:
    """The state file stays when the machine loses power, and ids begin anew."""
    with running(_STRANGER, tmp_path) as process:
        assert status(tmp_path) == 1
        assert down(tmp_path) == 0
        assert process.poll() is None
