"""Copies a log's files to another directory while the log goes on (JBOD moves, K-3.12)."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from aquifer_core.formats.leader_epoch_checkpoint import format_leader_epochs
from aquifer_core.formats.partition_metadata import format_partition_metadata
from aquifer_core.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT_NAME,
    PARTITION_METADATA_NAME,
)
from aquifer_core.ids import KafkaUuid

from aquifer_broker.log.atomic_file import fsync_directory, fsync_path, write_atomically
from aquifer_broker.log.disk_work import on_disk
from aquifer_broker.log.log_errors import LogStorageError
from aquifer_broker.log.log_segment import LogSegment
from aquifer_broker.log.log_state import LogState
from aquifer_broker.log.move_notes import MOVED_FROM_NAME, leave_note
from aquifer_broker.log.producer_snapshots import snapshot_path
from aquifer_broker.log.remote_check import is_check_due, require_check
from aquifer_broker.log.storage_guard import LogGuard

__all__ = ["LogCopy"]

_PIECE_BYTES: Final = 4 << 20


class LogCopy:
    """A copy in the making. `copy_new` as often as one likes, then `finish` once, while nothing is appended.

    Raises an OSError for the target's disk, a `LogStorageError` for the source's.
    """

    def __init__(
        self, state: LogState, guard: LogGuard, target: Path, source_id: KafkaUuid
    ) -> None:
        """Prepares; the guard is the log's, for what fails where it lies now."""
        self._state = state
        self._guard = guard
        self._source_id = source_id
        self.target = target
        self._copied: dict[int, int] = {}

    @property
    def lag_bytes(self) -> int:
        """Bytes of `.log` files that are not copied yet."""
        return sum(
            max(segment.size_bytes - self._copied.get(segment.base_offset, 0), 0)
            for segment in self._state.segments
        )

    async def copy_new(self) -> int:
        """Copies the `.log` bytes that have come since the last time; returns how many."""
        total = 0
        for segment in self._state.segments_in_step():
            done = self._copied.get(segment.base_offset, 0)
            if segment.size_bytes < done:
                # Truncated meanwhile: what was copied behind the new end is not part of the log.
                done = 0
            size_bytes = segment.size_bytes
            with ExitStack() as pins:
                with self._guard:
                    descriptor = pins.enter_context(segment.log_file.pinned())
                await on_disk(_copy_range, descriptor, self._path(segment), done, size_bytes)
            self._copied[segment.base_offset] = size_bytes
            total += size_bytes - done
        return total

    async def finish(self) -> None:
        """Copies the rest, the indexes, snapshots and checkpoints; everything is durable afterwards."""
        await self.copy_new()
        segments = list(self._state.segments)
        epochs = format_leader_epochs(self._state.leader_epochs.entries)
        with ExitStack() as pins:
            with self._guard:
                # As at a clean shutdown: the time index tells the largest timestamp.
                if segments[-1].prepare_end() and segments[-1] not in self._state.finished:
                    self._state.finished.append(segments[-1])
                for segment in segments:
                    segment.save_indexes()
                    pins.enter_context(segment.log_file.pinned())
            await on_disk(self._copy_rest, segments, epochs)

    def _path(self, segment: LogSegment) -> Path:
        return self.target / segment.log_file.path.name

    def _copy_rest(self, segments: list[LogSegment], epochs: bytes) -> None:
        wanted = {self._path(segment).name for segment in segments}
        for path in list(self.target.iterdir()):
            if path.name not in wanted:
                # Retention dropped the segment after it was copied.
                path.unlink()
        for segment in segments:
            fsync_path(self._path(segment))
            snapshot = snapshot_path(self._state.directory, segment.base_offset)
            for path in (*segment.files()[1:], snapshot):
                if path.exists():
                    write_atomically(self.target / path.name, _read(path))
        topic_id = self._state.topic_id_partition.topic_id
        write_atomically(self.target / LEADER_EPOCH_CHECKPOINT_NAME, epochs)
        if is_check_due(self._state.directory):
            require_check(self.target)
        leave_note(self.target, MOVED_FROM_NAME, self._source_id)
        write_atomically(self.target / PARTITION_METADATA_NAME, format_partition_metadata(topic_id))
        fsync_directory(self.target)


def _copy_range(source: int, target: Path, start: int, end: int) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, start)
        while start < end:
            piece = _pread(source, min(_PIECE_BYTES, end - start), start)
            if not piece:
                raise LogStorageError(f"{target.name} ends at {start}, expected {end}")
            start += os.pwrite(descriptor, piece, start)
    finally:
        os.close(descriptor)


def _pread(descriptor: int, size: int, position: int) -> bytes:
    try:
        return os.pread(descriptor, size, position)
    except OSError as error:
        raise LogStorageError(f"the source of a move cannot be read: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LogStorageError(f"the source of a move cannot be read: {error}") from error
