"""Removes renamed files some time after their rename, so that readers finish in peace."""

import heapq
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from aquifer_core.ports import Clock

from aquifer_broker.log.disk_work import on_disk

__all__ = ["FileCleaner"]

logger = structlog.get_logger(__name__)


@dataclass(order=True, slots=True)
class _Job:
    due_s: float
    number: int
    paths: Sequence[Path] = field(compare=False)
    release: Callable[[], None] | None = field(compare=False)


class FileCleaner:
    """A queue of files and directories to remove.

    `remove_due` is called now and then by the owner; `remove_all` when it closes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: list[_Job] = []
        self._scheduled = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def schedule(
        self, paths: Sequence[Path], delay_ms: int, release: Callable[[], None] | None = None
    ) -> None:
        """Removes files after a delay.

        Args:
            paths: Files or directories; those that do not exist are no matter.
            delay_ms: From now.
            release: Called in the event loop before the removal, to close descriptors.
        """
        self._scheduled += 1
        due_s = self._clock.monotonic_s() + delay_ms / 1000
        heapq.heappush(self._jobs, _Job(due_s, self._scheduled, paths, release))

    async def remove_due(self) -> int:
        """Removes what is due; returns how many paths. A failure is logged and the path is left to the next start."""
        now_s = self._clock.monotonic_s()
        due = []
        while self._jobs and self._jobs[0].due_s <= now_s:
            due.append(heapq.heappop(self._jobs))
        return await self._remove(due)

    async def remove_all(self) -> int:
        """Removes everything now."""
        due, self._jobs = self._jobs, []
        return await self._remove(due)

    async def _remove(self, jobs: Sequence[_Job]) -> int:
        for job in jobs:
            if job.release is not None:
                job.release()
        paths = [path for job in jobs for path in job.paths]
        if paths:
            await on_disk(_remove_paths, paths)
        return len(paths)


def _remove_paths(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("file_not_removed", path=str(path), error=str(error))
