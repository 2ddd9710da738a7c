"""One supervised child process: started until it is ready, restarted when it dies, stopped without leftovers."""

import asyncio
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from aquifer_standalone.life import ProcessFailedError, ProcessLife
from aquifer_standalone.spec import ProcessSpec

logger = structlog.get_logger(__name__)

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
        self._life: ProcessLife | None = None
        self._lives: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._was_ready = False
        self._ended_lives = 0
        self._last_error: Exception | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the process runs."""
        return self._life.pid if self._life is not None else None

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
        if self._lives is not None:
            raise RuntimeError(f"{self.spec.name} is started already")
        self._was_ready, self._ended_lives, self._last_error = False, 0, None
        self._lives = asyncio.create_task(self._live(), name=f"lives of {self.spec.name}")
        waiting = asyncio.create_task(self._ready.wait())
        try:
            async with asyncio.timeout(self.spec.ready_timeout_s):
                await asyncio.wait({self._lives, waiting}, return_when=asyncio.FIRST_COMPLETED)
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
        lives, self._lives = self._lives, None
        if lives is None:
            return
        self.state = ProcessState.STOPPING
        lives.cancel()
        await asyncio.wait({lives})
        self.state = ProcessState.STOPPED
        if not lives.cancelled() and (error := lives.exception()) is not None:
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
        if self._life is not None:
            self._life.signal(number)

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        policy = self.spec.restart
        delay_s = policy.initial_s
        while True:
            born = loop.time()
            try:
                await self._live_once()
            except Exception as error:
                self._last_error = error
                logger.warning("process_start_failed", process=self.spec.name, error=str(error))
            self._ended_lives += 1
            if not self._was_ready and self._ended_lives >= _GIVE_UP_AFTER_LIVES:
                return
            if loop.time() - born >= policy.reset_after_s:
                delay_s = policy.initial_s
            self.state = ProcessState.BACKING_OFF
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, policy.max_s)
            self.restarts += 1

    async def _live_once(self) -> None:
        self.state = ProcessState.STARTING
        name = self.spec.name
        if self.spec.prepare is not None:
            await self.spec.prepare()
        self._life = life = await ProcessLife.spawn(self.spec, self.log_file)
        try:
            took_s = await life.until_ready()
            self._was_ready = True
            self.state = ProcessState.READY
            self._ready.set()
            logger.info("process_ready", process=name, pid=life.pid, took_s=round(took_s, 3))
            exit_code = await life.until_exit()
            logger.warning(
                "process_exited", process=name, exit_code=exit_code, log=str(self.log_file)
            )
        finally:
            self._ready.clear()
            await life.end()

    def _failure(self) -> str:
        why = f": {self._last_error}" if self._last_error is not None else ""
        return f"{self.spec.name} is not ready{why}\n{self.log_file}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        if not self.log_file.exists():
            return "(no log)"
        with self.log_file.open("rb") as log:
            log.seek(max(0, self.log_file.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
