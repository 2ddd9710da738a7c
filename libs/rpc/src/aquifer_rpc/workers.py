"""Several processes of one service behind one port: started, watched, restarted and stopped by their parent."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog
from aquifer_core.errors import InvalidConfigurationError

logger = structlog.get_logger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_TICK_S: Final = 0.5
_PAUSE_MIN_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0
_PROVEN_AFTER_S: Final = 10.0
_MAX_FIRST_FAILURES: Final = 3
_EXIT_CONFIGURATION: Final = 2


class Heartbeat:
    """A worker's line to its parent; beaten from the event loop, so that a worker that hangs is noticed."""

    interval_s: Final = 1.0

    def __init__(self, handle: int) -> None:
        self._handle = handle

    async def beat(self) -> None:
        """Say that the worker lives. Without a parent it stops as if it had been told to."""
        try:
            os.write(self._handle, b".")
        except BlockingIOError:
            return  # the parent is slow; there is news enough in the pipe
        except BrokenPipeError:
            os.kill(os.getpid(), signal.SIGTERM)


@dataclass(slots=True)
class _Slot:
    """The place of a worker, and who has it now."""

    number: int
    pid: int = 0
    beats: int = -1
    started_s: float = 0.0
    last_beat_s: float = 0.0
    failures: int = 0
    start_at_s: float = 0.0


class WorkerProcesses:
    """Keeps a number of forked workers alive until SIGTERM or SIGINT, then lets all of them drain.

    A worker that ends is started again, with a back-off while it does not live long; one that is silent too long is killed. Workers that
    refuse their configuration, or that never come up, end the whole.
    """

    def __init__(self, count: int, *, stop_s: float, silence_s: float = 30.0) -> None:
        """Prepare; nothing is forked yet.

        Args:
            count: number of workers.
            stop_s: how long workers may take to stop before they are killed.
            silence_s: how long a worker may not beat while this process runs.
        """
        self._slots = [_Slot(number) for number in range(count)]
        self._stop_s = stop_s
        self._silence_s = silence_s
        self._looked_s = time.monotonic()
        self._stop_by_s: float | None = None
        self._exit_code = 0
        self._is_proven = False

    def run(self) -> Heartbeat | int:
        """Fork and watch; call it before there are threads or event loops.

        Returns:
            In every worker: its heartbeat, at once. In the parent: the exit code, when all workers have ended.
        """
        woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        old_waker = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

        def leave() -> None:
            signal.set_wakeup_fd(old_waker)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(waker)

        try:
            while not self._is_over():
                for slot in self._due():
                    heartbeat = self._fork(slot)
                    if heartbeat is not None:
                        return heartbeat
                self._wait(woken)
                self._reap()
                self._kill_silent()
            return self._exit_code
        finally:
            leave()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._stop(0)

    def _stop(self, exit_code: int) -> None:
        if self._stop_by_s is not None:
            return
        self._stop_by_s = time.monotonic() + self._stop_s
        self._exit_code = exit_code
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.pid:
                with suppress(ProcessLookupError):
                    os.kill(slot.pid, number)

    def _is_over(self) -> bool:
        return self._stop_by_s is not None and not any(slot.pid for slot in self._slots)

    def _due(self) -> list[_Slot]:
        if self._stop_by_s is not None:
            return []
        now_s = time.monotonic()
        return [slot for slot in self._slots if not slot.pid and slot.start_at_s <= now_s]

    def _fork(self, slot: _Slot) -> Heartbeat | None:
        """Start a worker. Returns its heartbeat in it, nothing in the parent."""
        try:
            beats, beat = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._not_started(slot, error)
            return None
        # A signal between the fork and the child's own handlers would be taken for the parent's.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = _forked()
            if pid == 0:
                self._become_worker(beats)
                return Heartbeat(beat)
            os.close(beat)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if isinstance(pid, OSError):
            os.close(beats)
            self._not_started(slot, pid)
            return None
        slot.pid, slot.beats = pid, beats
        slot.started_s = slot.last_beat_s = time.monotonic()
        logger.info("worker_started", worker=slot.number, pid=pid)
        if self._stop_by_s is not None:  # told to stop meanwhile
            os.kill(pid, signal.SIGTERM)
        return None

    def _become_worker(self, beats: int) -> None:
        # Ctrl-C in a terminal goes to the parent alone, which tells the workers once.
        os.setpgid(0, 0)
        for handle in (beats, *(each.beats for each in self._slots if each.pid)):
            os.close(handle)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def _not_started(self, slot: _Slot, error: OSError) -> None:
        """The machine is short of something: later, and meanwhile the other workers go on."""
        pause_s = _pause_after_failure(slot)
        logger.error("worker_not_started", worker=slot.number, error=str(error), retry_in_s=pause_s)

    def _wait(self, woken: int) -> None:
        handles = {slot.beats: slot for slot in self._slots if slot.pid}
        ready, _, _ = select.select([woken, *handles], [], [], _TICK_S)
        now_s = time.monotonic()
        for handle in ready:
            if _drain(handle) and handle in handles:
                handles[handle].last_beat_s = now_s

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.pid:
                pid, status = os.waitpid(slot.pid, os.WNOHANG)
                if pid:
                    self._ended(slot, os.waitstatus_to_exitcode(status))

    def _ended(self, slot: _Slot, exit_code: int) -> None:
        os.close(slot.beats)
        lived_s = time.monotonic() - slot.started_s
        pid, slot.pid = slot.pid, 0
        if self._stop_by_s is not None:
            logger.info("worker_stopped", worker=slot.number, pid=pid, exit_code=exit_code)
            return
        if lived_s >= _PROVEN_AFTER_S:
            self._is_proven, slot.failures = True, 0
        pause_s = _pause_after_failure(slot)
        logger.error(
            "worker_ended",
            worker=slot.number,
            pid=pid,
            exit_code=exit_code,
            lived_s=round(lived_s, 3),
            restart_in_s=pause_s,
        )
        if exit_code == _EXIT_CONFIGURATION:
            self._stop(exit_code)
        elif not self._is_proven and exit_code > 0 and slot.failures >= _MAX_FIRST_FAILURES:
            self._stop(1)

    def _kill_silent(self) -> None:
        now_s = time.monotonic()
        away_s, self._looked_s = now_s - self._looked_s, now_s
        if self._stop_by_s is not None:
            if now_s >= self._stop_by_s:
                self._signal_all(signal.SIGKILL)
            return
        for slot in self._slots:
            if away_s > self._silence_s / 2:
                # This process was paused, and so were the workers: a frozen container, a machine that was moved.
                slot.last_beat_s = now_s
            silent_s = now_s - slot.last_beat_s
            if slot.pid and silent_s > self._silence_s:
                logger.error(
                    "worker_hangs", worker=slot.number, pid=slot.pid, silent_s=round(silent_s, 1)
                )
                os.kill(slot.pid, signal.SIGKILL)


@contextmanager
def shared_address(listen: str) -> Iterator[str]:
    """Take an address that several processes may listen on, and keep it taken while none does.

    Args:
        listen: host:port; port 0 takes a free one.

    Yields:
        The address with its port.

    Raises:
        InvalidConfigurationError: somebody else has it.
    """
    host, _, port = listen.rpartition(":")
    with ExitStack() as stack:
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host.strip("[]") or None,
                int(port),
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )[0]
            taken = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            taken.bind(address)
        except (OSError, ValueError) as error:
            raise InvalidConfigurationError(
                f"cannot listen on {listen}: choose a free address of this host",
                metadata={"key": "grpc.listen"},
            ) from error
        yield f"{host}:{taken.getsockname()[1]}"


def _forked() -> int | OSError:
    """Forks; an error of the parent's is not raised, lest one of the child's be taken for it."""
    try:
        return os.fork()
    except OSError as error:
        return error


def _pause_after_failure(slot: _Slot) -> float:
    """Seconds until the place may be filled again; doubles."""
    pause_s = min(_PAUSE_MIN_S * 2.0**slot.failures, _PAUSE_MAX_S)
    slot.failures = min(slot.failures + 1, 32)
    slot.start_at_s = time.monotonic() + pause_s
    return pause_s


def _drain(handle: int) -> bool:
    """Read what is in a pipe; false at its end."""
    try:
        return bool(os.read(handle, 4096))
    except BlockingIOError:
        return False
