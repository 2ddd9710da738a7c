"""One supervised child process: started until it is ready, restarted when it dies, stopped without leftovers."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from aquifer_core.errors import UnavailableError

from aquifer_standalone.ports import release_all
from aquifer_standalone.spec import ProcessSpec
from aquifer_standalone.unprivileged import UnprivilegedUser

logger = structlog.get_logger(__name__)

_LAUNCHER = Path(__file__).with_name("_launch.py")
_PROBE_INTERVAL_S = 0.05
_GIVE_UP_AFTER_LIVES = 3
_LOG_TAIL_BYTES = 4_000


class ProcessState(StrEnum):
    """Where a child process is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A moment's view of one child process."""

    name: str
    state: ProcessState
    pid: int | None
    restarts: int
    log_file: Path


class ProcessFailedError(UnavailableError):
    """A child process did not become ready; the text ends with the last lines of its log."""


def launcher_argv(argv: Sequence[str], user: UnprivilegedUser | None) -> list[str]:
    """Wrap `argv` so that it dies with this process, running as `user` when one is given."""
    uid, gid, keep = (
        (user.uid, user.gid, int(user.keep_file_access)) if user is not None else (-1, -1, 0)
    )
    interpreter = [sys.executable, "-S", "-E", "-s", str(_LAUNCHER)]
    return [*interpreter, str(os.getpid()), str(uid), str(gid), str(keep), "--", *argv]


class ChildProcess:
    """Owns one process from `start` to `stop`; an async context manager.

    Must be started from a thread that lives as long as the process should: the kernel ties a child to the thread that
    made it.
    """

    def __init__(self, spec: ProcessSpec, *, log_dir: Path) -> None:
        self.spec = spec
        self.log_file = log_dir / f"{spec.name}.log"
        self.state = ProcessState.STOPPED
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._was_ready = False
        self._lives = 0
        self._last_error: Exception | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the process runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def status(self) -> ProcessStatus:
        """Describe the process as it is now."""
        return ProcessStatus(
            name=self.spec.name,
            state=self.state,
            pid=self.pid,
            restarts=self.restarts,
            log_file=self.log_file,
        )

    async def start(self) -> None:
        """Start the process and return once it is ready.

        Raises:
            ProcessFailedError: it was not ready within `ready_timeout_s`, or kept exiting before it was.
        """
        if self._life is not None:
            raise RuntimeError(f"{self.spec.name} is started already")
        self._was_ready, self._lives = False, 0
        self._life = asyncio.create_task(self._live(), name=f"life of {self.spec.name}")
        waiting = asyncio.create_task(self._ready.wait())
        try:
            async with asyncio.timeout(self.spec.ready_timeout_s):
                await asyncio.wait({self._life, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            waiting.cancel()
        if not self._ready.is_set():
            why = self._failure()
            await self.stop()
            raise ProcessFailedError(why) from self._last_error

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the process is ready, for example after a crash.

        Raises:
            ProcessFailedError: it was not ready in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise ProcessFailedError(self._failure()) from self._last_error

    async def stop(self) -> None:
        """Send the stop signal, then SIGKILL after the grace period; idempotent."""
        life, self._life = self._life, None
        if life is None:
            return
        life.cancel()
        await asyncio.wait({life})
        self.state = ProcessState.STOPPED
        if not life.cancelled() and (error := life.exception()) is not None:
            raise error

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the running process, for example to crash it; nothing happens when it does not run."""
        if self.pid is not None and self._process is not None:
            self._process.send_signal(number)

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        policy = self.spec.restart
        delay_s = policy.initial_s
        while True:
            born = loop.time()
            try:
                await self._run_once()
            except Exception as error:
                self._last_error = error
                logger.warning("process_start_failed", process=self.spec.name, error=str(error))
            self._lives += 1
            if not self._was_ready and self._lives >= _GIVE_UP_AFTER_LIVES:
                return
            if loop.time() - born >= policy.reset_after_s:
                delay_s = policy.initial_s
            self.state = ProcessState.BACKING_OFF
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, policy.max_s)
            self.restarts += 1

    async def _run_once(self) -> None:
        """Live one life: spawn, become ready, run until exit. Whatever happens, nothing is left running."""
        self.state = ProcessState.STARTING
        if self.spec.prepare is not None:
            await self.spec.prepare()
        process = await self._spawn()
        self._process = process
        try:
            took_s = await self._until_ready(process)
            self._was_ready = True
            self.state = ProcessState.READY
            self._ready.set()
            logger.info(
                "process_ready", process=self.spec.name, pid=process.pid, took_s=round(took_s, 3)
            )
            await process.wait()
            logger.warning(
                "process_exited",
                process=self.spec.name,
                exit_code=process.returncode,
                log=str(self.log_file),
            )
        finally:
            self._ready.clear()
            await self._end(process)

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        release_all(self.spec.ports)
        with self.log_file.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *launcher_argv(self.spec.argv, self.spec.run_as),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self.spec.cwd,
                env={**os.environ, **self.spec.env},
                start_new_session=True,
            )

    async def _until_ready(self, process: asyncio.subprocess.Process) -> float:
        loop = asyncio.get_running_loop()
        born = loop.time()
        exited = asyncio.create_task(process.wait())
        try:
            while not await self._probe():
                await asyncio.wait({exited}, timeout=_PROBE_INTERVAL_S)
                if exited.done():
                    raise ProcessFailedError(
                        f"exited with code {process.returncode} before it was ready"
                    )
                if loop.time() - born > self.spec.ready_timeout_s:
                    raise ProcessFailedError(f"not ready after {self.spec.ready_timeout_s} s")
        finally:
            exited.cancel()
        return loop.time() - born

    async def _probe(self) -> bool:
        try:
            return await self.spec.readiness()
        except Exception as error:
            if repr(error) != repr(self._last_error):
                logger.info("process_probe_failed", process=self.spec.name, error=repr(error))
            self._last_error = error
            return False

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Make sure that neither the process nor its process group lives on, also when cancelled again."""
        try:
            if process.returncode is None:
                self.state = ProcessState.STOPPING
                process.send_signal(self.spec.stop_signal)
                async with asyncio.timeout(self.spec.stop_grace_s):
                    await process.wait()
        except TimeoutError:
            logger.warning("process_killed", process=self.spec.name, grace_s=self.spec.stop_grace_s)
        except ProcessLookupError:
            logger.debug("process_gone_before_signal", process=self.spec.name)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    def _failure(self) -> str:
        why = f": {self._last_error}" if self._last_error is not None else ""
        return f"{self.spec.name} is not ready{why}\n{self.log_file}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        if not self.log_file.exists():
            return "(no log)"
        with self.log_file.open("rb") as log:
            log.seek(max(0, self.log_file.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
