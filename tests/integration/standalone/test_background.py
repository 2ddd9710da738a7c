"""What `make down` and `make status` take for the suite, and what not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
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
_STARTING = """
import asyncio, pathlib, sys
from aquifer_standalone.run import serve_until_signal
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.supervisor import Supervisor

async def never():
    if not asked:
        asked.append(True)
        print("up", flush=True)
    return False

asked = []
data_dir = pathlib.Path(sys.argv[1])
spec = ProcessSpec(
    name="slow",
    argv=(sys.executable, "-S", "-c", "import signal; signal.pause()"),
    readiness=never,
    ready_timeout_s=600,
)
supervisor = Supervisor([spec], data_dir=data_dir)
sys.exit(asyncio.run(serve_until_signal(supervisor, data_dir / "standalone.json", dict)))
"""
_STRANGER = "print('up', flush=True); input()"


@contextmanager
def running(
    program: str, data_dir: Path, *, ready: bool = True
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of which the state file says, when it is ready, that it is the suite's."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert b"up\n" in iter(process.stdout.readline, b"")
        if ready:
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


def test_the_suite_is_stopped_while_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a Ctrl-C to `make up`, which leaves it starting in the background."""
    with running(_STARTING, tmp_path, ready=False) as process:
        assert status(tmp_path) == 1
        assert "starting" in capsys.readouterr().out
        assert down(tmp_path) == 0
        assert process.wait(60) == 0
    assert not (tmp_path / STATE_FILE).exists()
