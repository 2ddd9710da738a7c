"""Starts child processes in the order of their dependencies and stops them in the reverse order."""

import asyncio
import fcntl
import graphlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from aquifer_core.errors import InvalidConfigurationError

from aquifer_standalone.ports import release_all
from aquifer_standalone.process import ChildProcess, ProcessStatus
from aquifer_standalone.spec import ProcessSpec

logger = structlog.get_logger(__name__)

_LOCK_FILE = "supervisor.lock"


class Supervisor:
    """Owns a set of child processes; an async context manager that leaves nothing running.

    A process starts when all it depends on is ready; what is independent starts and stops at the same time. One data
    folder has one supervisor at a time. Logs go to `data_dir`/logs.
    """

    def __init__(self, specs: Iterable[ProcessSpec], *, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._children: dict[str, ChildProcess] = {}
        for spec in specs:
            if spec.name in self._children:
                raise InvalidConfigurationError(f"two processes are named {spec.name}")
            self._children[spec.name] = ChildProcess(spec, log_dir=data_dir / "logs")
        self._dependencies = _dependencies(self._children)
        self._lock_handle: int | None = None

    def child(self, name: str) -> ChildProcess:
        """Give the process of that name."""
        return self._children[name]

    def status(self) -> list[ProcessStatus]:
        """Describe every process, in the order given."""
        return [child.status() for child in self._children.values()]

    async def start(self) -> None:
        """Start everything and return once everything is ready; on failure nothing is left running.

        Raises:
            ProcessFailedError: a process did not become ready.
            InvalidConfigurationError: another supervisor runs on the data folder.
        """
        self._lock()
        try:
            await _in_order(self._dependencies, lambda name: self._children[name].start())
        except BaseException as error:
            await self.stop()
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from error
            raise
        logger.info("suite_ready", processes=len(self._children))

    async def stop(self) -> None:
        """Stop everything, dependents before what they depend on; idempotent."""
        dependents = {
            name: {other for other, needs in self._dependencies.items() if name in needs}
            for name in self._children
        }
        try:
            await _in_order(dependents, lambda name: self._children[name].stop())
        finally:
            for child in self._children.values():
                release_all(child.spec.ports)
            self._unlock()

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

    def _lock(self) -> None:
        if self._lock_handle is not None:
            raise RuntimeError("this supervisor is started already")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.data_dir / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise InvalidConfigurationError(
                f"another supervisor runs on {self.data_dir}; stop it or choose another data folder"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        self._lock_handle = handle

    def _unlock(self) -> None:
        if self._lock_handle is not None:
            os.close(self._lock_handle)
            self._lock_handle = None


def supervisor_pid(data_dir: Path) -> int | None:
    """The process of the supervisor that runs on the folder, be it ready or not; None: there is none."""
    try:
        handle = os.open(data_dir / _LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(handle, 32) or 0) or None
    finally:
        os.close(handle)
    return None


def _dependencies(children: Mapping[str, ChildProcess]) -> dict[str, set[str]]:
    graph = {name: set(child.spec.depends_on) for name, child in children.items()}
    unknown = set().union(*graph.values()) - graph.keys()
    if unknown:
        raise InvalidConfigurationError(f"nothing is named {', '.join(sorted(unknown))}")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise InvalidConfigurationError(
            f"processes wait for each other: {error.args[1]}"
        ) from error
    return graph


async def _in_order(graph: Mapping[str, set[str]], act: Callable[[str], Awaitable[None]]) -> None:
    """Run `act` on every node of `graph` after it succeeded on all the node's predecessors."""
    done = {name: asyncio.Event() for name in graph}

    async def act_on(name: str) -> None:
        for predecessor in graph[name]:
            await done[predecessor].wait()
        await act(name)
        done[name].set()

    async with asyncio.TaskGroup() as group:
        for name in graph:
            group.create_task(act_on(name))
