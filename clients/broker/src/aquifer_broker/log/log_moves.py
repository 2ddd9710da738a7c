"""Moves of logs between the log dirs of a broker, in the background (AlterReplicaLogDirs, SR-28)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aquifer_core.errors import AquiferError
from aquifer_core.formats.segment_files import partition_directory

from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_copy import LogCopy
from aquifer_broker.log.log_dir import LogDir
from aquifer_broker.log.log_resources import LogResources
from aquifer_broker.log.open_files import needs_free_file
from aquifer_broker.log.partition_log import PartitionLog

__all__ = ["FutureLog", "LogMoves"]

logger = structlog.get_logger(__name__)

# Below this the rest is copied while appends wait.
_SMALL_REST_BYTES: Final = 8 << 20
_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureLog:
    """A move under way, as DescribeLogDirs tells it."""

    log: PartitionLog
    log_dir: Path
    lag_bytes: int


@dataclass(slots=True)
class _Move:
    log: PartitionLog
    target: LogDir
    copy: LogCopy
    task: asyncio.Task[None]


class LogMoves:
    """Moves under way, at most one a log."""

    def __init__(
        self,
        *,
        resources_of: Callable[[LogDir], LogResources],
        moved: Callable[[PartitionLog, LogDir, Path], Awaitable[None]],
    ) -> None:
        """Prepares.

        Args:
            resources_of: What a log in a dir gets.
            moved: Told when a log lies in its new dir, with the directory that it left.
        """
        self._resources_of = resources_of
        self._moved = moved
        self._moves: dict[tuple[str, int], _Move] = {}

    def future_logs(self) -> list[FutureLog]:
        """Every move under way."""
        return [
            FutureLog(log=move.log, log_dir=move.target.path, lag_bytes=move.copy.lag_bytes)
            for move in self._moves.values()
        ]

    async def start(self, log: PartitionLog, target: LogDir) -> None:
        """Begins a move; one to another dir is given up. Idempotent.

        Raises:
            LogStorageError: The target is offline.
        """
        key = _key(log)
        known = self._moves.get(key)
        if known is not None and known.target is target:
            return
        await self.cancel(key)
        if log.directory.parent == target.path:
            return
        with target.guard, needs_free_file(target.path):
            future = await on_disk(target.make_future, partition_directory(*key))
        copy = log.start_copy(future)
        task = asyncio.create_task(self._run(log, target, copy, future), name=f"move {future.name}")
        self._moves[key] = _Move(log, target, copy, task)

    async def cancel(self, key: tuple[str, int]) -> None:
        """Gives a move up, whatever it has done so far; idempotent."""
        move = self._moves.pop(key, None)
        if move is not None:
            move.task.cancel()
            await asyncio.wait([move.task])

    async def wait(self, key: tuple[str, int]) -> None:
        """Returns when no move of a log is under way."""
        move = self._moves.get(key)
        if move is not None:
            await asyncio.wait([move.task])

    async def close(self) -> None:
        """Gives every move up."""
        for key in list(self._moves):
            await self.cancel(key)

    async def _run(self, log: PartitionLog, target: LogDir, copy: LogCopy, future: Path) -> None:
        key = _key(log)
        left = log.directory
        try:
            with target.guard, needs_free_file(target.path):
                for _ in range(_ROUNDS):
                    if await copy.copy_new() < _SMALL_REST_BYTES:
                        break
                final = target.path / partition_directory(*key)
                await log.switch_to(final, target, copy, self._resources_of(target))
            logger.info(
                "log_moved", partition=str(log.topic_id_partition), log_dir=str(target.path)
            )
            await self._moved(log, target, left)
        except AquiferError as error:
            logger.error("log_move_failed", partition=str(log.topic_id_partition), error=str(error))
        finally:
            if self._moves.get(key) is not None and self._moves[key].copy is copy:
                del self._moves[key]
            await on_disk(target.drop_future, future)


def _key(log: PartitionLog) -> tuple[str, int]:
    return log.topic_id_partition.topic, log.topic_id_partition.partition
