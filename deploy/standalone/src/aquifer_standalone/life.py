"""One life of a child process: from its spawning through its being ready to its end, with nothing left behind."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
from aquifer_core.errors import UnavailableError

from aquifer_standalone.ports import release_all
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.unprivileged import UnprivilegedUser

logger = structlog.get_logger(__name__)

_LAUNCHER = Path(__file__).with_name("_launch.py")
_PROBE_INTERVAL_S = 0.05


class ProcessFailedError(UnavailableError):
    """A child process did not become ready; the text ends with the last lines of its log."""


def launcher_argv(argv: Sequence[str], user: UnprivilegedUser | None) -> list[str]:
    """Wrap `argv` so that it dies with this process, running as `user` when one is given."""
    uid, gid, keep = (
        (user.uid, user.gid, int(user.keep_file_access)) if user is not None else (-1, -1, 0)
    )
    interpreter = [sys.executable, "-S", "-E", "-s", str(_LAUNCHER)]
    return [*interpreter, str(os.getpid()), str(uid), str(gid), str(keep), "--", *argv]


class ProcessLife:
    """A spawned process. Whoever spawned it calls `end`, whatever happens in between."""

    def __init__(self, spec: ProcessSpec, process: asyncio.subprocess.Process) -> None:
        self._spec = spec
        self._process = process

    @classmethod
    async def spawn(cls, spec: ProcessSpec, log_file: Path) -> "ProcessLife":
        """Start the process in a session of its own, so that a terminal's Ctrl-C reaches the supervisor only."""
        log_file.parent.mkdir(parents=True, exist_ok=True)
        release_all(spec.ports)
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *launcher_argv(spec.argv, spec.run_as),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=spec.cwd,
                env={**os.environ, **spec.env},
                start_new_session=True,
            )
        return cls(spec, process)

    @property
    def pid(self) -> int | None:
        """The process id while the process runs."""
        return self._process.pid if self._process.returncode is None else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def until_exit(self) -> int:
        """Wait for the process to end and return its exit code, negative for a signal."""
        return await self._process.wait()

    async def until_ready(self) -> float:
        """Ask until the process is ready and return how many seconds that took.

        Raises:
            ProcessFailedError: the process ended first, or the deadline passed.
        """
        loop = asyncio.get_running_loop()
        born = loop.time()
        exited = asyncio.create_task(self._process.wait())
        error: Exception | None = None
        try:
            while True:
                try:
                    if await self._spec.readiness():
                        return loop.time() - born
                except Exception as raised:
                    error = raised
                await asyncio.wait({exited}, timeout=_PROBE_INTERVAL_S)
                if (why := self._hopeless(loop.time() - born)) is not None:
                    raise ProcessFailedError(why) from error
        finally:
            exited.cancel()

    def _hopeless(self, waited_s: float) -> str | None:
        if self.pid is None:
            return f"exited with code {self._process.returncode} before it was ready"
        if waited_s > self._spec.ready_timeout_s:
            return f"not ready after {self._spec.ready_timeout_s} s"
        return None

    async def end(self) -> None:
        """Stop the process and its process group: the stop signal, then SIGKILL; at once when cancelled again."""
        try:
            self.signal(self._spec.stop_signal)
            async with asyncio.timeout(self._spec.stop_grace_s):
                await self._process.wait()
        except TimeoutError:
            logger.info("process_killed", process=self._spec.name, grace_s=self._spec.stop_grace_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
