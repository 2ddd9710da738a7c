"""Starts the suite as a background process, and finds and stops it again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aquifer_core.errors import UnavailableError
from rich.console import Console
from rich.table import Table

from aquifer_standalone.run import STATE_FILE
from aquifer_standalone.supervisor import supervisor_pid

_START_S = 120.0
STOP_S = 180.0
"""How long `down` waits; longer than all parts may take one after the other."""
_POLL_S = 0.1
_TAIL_LINES = 15

_console = Console()


def up(data_dir: Path, brokers: int, otlp_endpoint: str | None) -> int:
    """Starts everything unless it runs already, and prints where clients connect.

    Raises:
        UnavailableError: it did not become ready; the text has the end of its log.
    """
    if _running(data_dir) is None:
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / STATE_FILE).unlink(missing_ok=True)
        log_file = data_dir / "standalone.log"
        command = [sys.executable, "-m", "aquifer_standalone", "--log-level", "info", "run"]
        command += ["--data", str(data_dir), "--brokers", str(brokers)]
        command += ["--otlp", otlp_endpoint] if otlp_endpoint else []
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        _wait_until_ready(process, data_dir, log_file)
    return status(data_dir)


def down(data_dir: Path) -> int:
    """Stops what runs on the folder; nothing running is success.

    Raises:
        UnavailableError: it does not end.
    """
    pid = supervisor_pid(data_dir)
    if pid is None:
        _console.print(f"nothing runs on {data_dir}")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while _alive(pid):
        if time.monotonic() > deadline:
            raise UnavailableError(f"process {pid} has not stopped within {STOP_S:.0f} s")
        time.sleep(_POLL_S)
    _console.print("stopped; the data stays in", data_dir)
    return 0


def status(data_dir: Path) -> int:
    """Prints what runs on the folder; exit code 1 when nothing does."""
    state = _running(data_dir)
    if state is None:
        starting = supervisor_pid(data_dir) is not None
        _console.print(
            f"still starting on {data_dir}" if starting else f"nothing runs on {data_dir}"
        )
        return 1
    table = Table(title="Aquifer is up", show_header=False)
    for name, value in state.items():
        table.add_row(name.replace("_", "."), str(value))
    _console.print(table)
    return 0


def _wait_until_ready(process: "subprocess.Popen[bytes]", data_dir: Path, log_file: Path) -> None:
    deadline = time.monotonic() + _START_S
    while _running(data_dir) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            lines = log_file.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            raise UnavailableError("not ready; the end of its log:\n" + "\n".join(lines))
        time.sleep(_POLL_S)


def _running(data_dir: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((data_dir / STATE_FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    # Another process may have got the id since: the file stays when the machine loses power.
    return state if supervisor_pid(data_dir) == state["pid"] else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return True
